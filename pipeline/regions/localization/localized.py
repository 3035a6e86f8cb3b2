"""The localization file: embeddings of a split's proposals and phrases, and the queries.

It contains all data for evaluation, report and search, so that none of them reads features or a
head. docs/regions.md has the layout.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from pipeline.regions import RegionError
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.store.files import require_held
from pipeline.store.guard import crash_of, trust
from pipeline.store.hashing import canonical_json
from pipeline.store.schema import decode
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.shards.writer import with_room

FORMAT, FORMAT_VERSION = "pipeline-localization", 1

# A text needs a reference of 16 bytes in a file, and a header in a heap.
_TEXT_BYTES = 48

Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Localized:
    """Images with their proposals, phrases, and queries: a phrase in an image."""

    image_ids: tuple[str, ...]  # in the order of the dataset
    sizes: RowNumbers  # (images, 2), width and height in pixels
    # (images + 1,), the first proposal of each image, and the end of the last; an image may
    # have none
    first_region: RowNumbers
    boxes: Floats  # (regions, 4), x0 y0 x1 y1 in pixels, right and bottom exclusive
    regions: Floats  # (regions, dim) embeddings
    phrase_texts: tuple[str, ...]  # the distinct phrases
    phrases: Floats  # (phrases, dim) embeddings
    known: npt.NDArray[np.bool_]  # (phrases,), whether the encoder knows a word
    query_ids: tuple[str, ...]
    query_image: RowNumbers  # (queries,) row numbers
    query_phrase: RowNumbers  # (queries,) row numbers
    query_types: tuple[str, ...]  # (queries,) joined by "/"; may be empty
    first_truth: RowNumbers  # (queries + 1,), the first true box of each query, and the end
    truth: Floats  # (n, 4) true boxes, any of which is correct
    similarity: str
    provenance: dict[str, Any]  # JSON values

    def regions_of(self, image: int) -> slice:
        """Return the rows of an image's proposals."""
        return slice(int(self.first_region[image]), int(self.first_region[image + 1]))

    def truth_of(self, query: int) -> Floats:
        """Return the true boxes of a query, (n, 4)."""
        return self.truth[self.first_truth[query] : self.first_truth[query + 1]]

    @cached_property
    def queries_of_image(self) -> list[RowNumbers]:
        """The queries of each image, in order."""
        order = np.argsort(self.query_image, kind="stable")
        ends = np.searchsorted(self.query_image[order], np.arange(1, len(self.image_ids)))
        return list(np.split(order, ends))

    def scores(self, image: int, phrases: Floats) -> Scores:
        """Return the similarities (proposals, p) of an image's proposals with phrases (p, dim).

        They are float64, rounded to float32; higher is more similar.
        """
        similarity = SIMILARITIES[self.similarity]
        regions = self.regions[self.regions_of(image)]
        if not (len(regions) and len(phrases)):
            return np.zeros((len(regions), len(phrases)))
        similarities = similarity.between(similarity.prepare(regions), similarity.prepare(phrases))
        # The last digits of a product depend on its shape; unrounded, they would break ties.
        return similarities.astype(np.float32).astype(np.float64)


_KINDS = {"O": "texts", "iu": "whole numbers", "f": "floats", "b": "booleans"}
# Name in the file, attribute, dtype kinds of `_KINDS`, and the axes.
_COLUMNS = (
    ("images/id", "image_ids", "O", ("images",)),
    ("images/size", "sizes", "iu", ("images", 2)),
    ("images/first_region", "first_region", "iu", ("images and 1",)),
    ("regions/box", "boxes", "f", ("regions", 4)),
    ("regions/embedding", "regions", "f", ("regions", "dimensions")),
    ("phrases/text", "phrase_texts", "O", ("phrases",)),
    ("phrases/embedding", "phrases", "f", ("phrases", "dimensions")),
    ("phrases/known", "known", "b", ("phrases",)),
    ("queries/id", "query_ids", "O", ("queries",)),
    ("queries/image", "query_image", "iu", ("queries",)),
    ("queries/phrase", "query_phrase", "iu", ("queries",)),
    ("queries/types", "query_types", "O", ("queries",)),
    ("queries/first_truth", "first_truth", "iu", ("queries and 1",)),
    ("truth/box", "truth", "f", ("true boxes", 4)),
)


def write_localized(path: str | Path, localized: Localized) -> None:
    """Write a localization file atomically; equal contents have equal bytes."""
    arrays = {name: getattr(localized, attribute) for name, attribute, _, _ in _COLUMNS}
    texts = {name for name, _, kind, _ in _COLUMNS if kind == "O"}
    needed = sum(
        _TEXT_BYTES * len(values) + sum(map(len, values)) if name in texts else values.nbytes
        for name, values in arrays.items()
    )
    with (
        with_room(Path(path), needed) as part,
        h5py.File(part, "w", libver="earliest", track_order=False) as file,
    ):
        for name, values in arrays.items():
            if name in texts:
                kind = h5py.string_dtype()
                file.create_dataset(name, data=list(values), dtype=kind, track_times=False)
            else:
                file.create_dataset(name, data=values, track_times=False)
        file.attrs["format"] = FORMAT
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["similarity"] = localized.similarity
        file.attrs["provenance"] = canonical_json(localized.provenance)
    trust(Path(path))


def read_localized(path: str | Path) -> Localized:
    """Load a localization file; raise if it is missing, of another format, or damaged."""
    path = Path(path)
    if not path.is_file():
        raise RegionError(f"{path} not found; `pipeline localize` writes localization files")
    if reason := crash_of(_stored, path):
        raise RegionError(f"{path}: HDF5 {reason}; run `pipeline localize` again")
    try:
        localized = _stored(path)
        _check(localized)
        return localized
    # h5py raises the last four for groups and links in place of datasets, and for absurd shapes.
    except (
        OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError,
        MemoryError,
    ) as error:  # fmt: skip
        raise RegionError(f"{path} is damaged ({error}); run `pipeline localize` again") from error


def _stored(path: Path) -> Localized:
    with h5py.File(path, "r") as file:
        if file.attrs.get("format") != FORMAT:
            raise RegionError(
                f"{path} is not a localization file (its format is {file.attrs.get('format')!r}); "
                "`pipeline localize` writes one"
            )
        sizes: dict[str, int] = {}
        columns = {
            attribute: _column(file, name, kinds, axes, sizes)
            for name, attribute, kinds, axes in _COLUMNS
        }
        return Localized(
            **columns,
            similarity=str(file.attrs["similarity"]),
            provenance=decode(file.attrs["provenance"], dict[str, Any]),
        )


def _column(
    file: h5py.File, name: str, kinds: str, axes: tuple[str | int, ...], sizes: dict[str, int]
) -> Any:
    """Return a column whose axes match the lengths of earlier columns."""
    dataset = require_held(file[name])
    for axis, length in zip(axes, dataset.shape or (), strict=False):
        if isinstance(axis, str):
            sizes.setdefault(axis, length)
    expected = tuple(sizes.get(axis) if isinstance(axis, str) else axis for axis in axes)
    if dataset.dtype.kind not in kinds or dataset.shape != expected:
        raise ValueError(
            f"{name} is {dataset.dtype} of shape {dataset.shape}, expected {_KINDS[kinds]} of "
            f"shape {expected}, an axis for {' and one for '.join(map(str, axes))}"
        )
    return tuple(dataset.asstr()[()]) if kinds == "O" else np.asarray(dataset[()])


def _check(data: Localized) -> None:
    """Check that numbers are finite, and that row numbers are in range."""
    _check_firsts("regions", data.first_region, len(data.image_ids), len(data.boxes))
    _check_firsts("true boxes", data.first_truth, len(data.query_ids), len(data.truth))
    for query in np.flatnonzero(np.diff(data.first_truth) == 0)[:1]:
        raise ValueError(f"query {data.query_ids[query]!r} has no true box")
    for what, rows, number in (
        ("images", data.query_image, len(data.image_ids)),
        ("phrases", data.query_phrase, len(data.phrase_texts)),
    ):
        if ((rows < 0) | (rows >= number)).any():
            raise ValueError(f"queries name {what} beyond the {number} of the file")
    for name, attribute, kinds, _ in _COLUMNS:
        if kinds == "f" and not np.isfinite(getattr(data, attribute)).all():
            raise ValueError(f"{name} has values that are not finite")
    if data.similarity not in SIMILARITIES:
        raise ValueError(f"the similarity {data.similarity!r} is unknown")


def _check_firsts(what: str, firsts: RowNumbers, of: int, number: int) -> None:
    """Check the starts of lists, and their common end."""
    if len(firsts) != of + 1 or firsts[0] or firsts[-1] != number or (np.diff(firsts) < 0).any():
        raise ValueError(f"its lists do not divide {number} {what} among {of}")
