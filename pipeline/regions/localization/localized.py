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
from pipeline.store import columns
from pipeline.store.columns import TEXT, Column
from pipeline.store.guard import crash_of, trust
from pipeline.store.hashing import canonical_json
from pipeline.store.own_files import reading
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


COLUMNS = (
    Column("images/id", TEXT, ("images",), "ids of the images", "image_ids"),
    Column("images/size", "<i8", ("images", 2), "width and height in pixels", "sizes"),
    Column(
        "images/first_region", "<i8", ("images and 1",),
        "first proposal of each image, and the end", "first_region",
    ),
    Column("regions/box", "<f4", ("regions", 4), "x0 y0 x1 y1 of proposals, in pixels", "boxes"),
    Column("regions/embedding", "<f4", ("regions", "dimensions"), "of proposals", "regions"),
    Column("phrases/text", TEXT, ("phrases",), "the distinct phrases", "phrase_texts"),
    Column("phrases/embedding", "<f4", ("phrases", "dimensions"), "of phrases", "phrases"),
    Column("phrases/known", "|b1", ("phrases",), "whether the encoder knows a word", "known"),
    Column("queries/id", TEXT, ("queries",), "ids of the queries", "query_ids"),
    Column("queries/image", "<i8", ("queries",), "row number of the image", "query_image"),
    Column("queries/phrase", "<i8", ("queries",), "row number of the phrase", "query_phrase"),
    Column("queries/types", TEXT, ("queries",), "types, joined by '/'", "query_types"),
    Column(
        "queries/first_truth", "<i8", ("queries and 1",),
        "first true box of each query, and the end", "first_truth",
    ),
    Column("truth/box", "<f4", ("true boxes", 4), "x0 y0 x1 y1 of true boxes", "truth"),
)  # fmt: skip
"""The datasets of a localization file, by the fields of `Localized`."""


def write_localized(path: str | Path, localized: Localized) -> None:
    """Write a localization file atomically; equal contents have equal bytes."""
    values = {column.key: getattr(localized, column.key) for column in COLUMNS}
    texts = [values[column.key] for column in COLUMNS if column.dtype == TEXT]
    needed = sum(_TEXT_BYTES * len(of_column) + sum(map(len, of_column)) for of_column in texts)
    needed += sum(values[column.key].nbytes for column in COLUMNS if column.dtype != TEXT)
    with (
        with_room(Path(path), needed) as part,
        h5py.File(part, "w", libver="earliest", track_order=False) as file,
    ):
        columns.write(file, COLUMNS, values)
        file.attrs["format"] = FORMAT
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["similarity"] = localized.similarity
        file.attrs["provenance"] = canonical_json(localized.provenance)
    trust(Path(path))


def read_localized(path: str | Path) -> Localized:
    """Load a localization file; raise if it is missing, of another format, or damaged."""
    path = Path(path)
    remedy = "run `pipeline localize` again"
    if reason := crash_of(_stored, path):
        raise RegionError(f"{path}: HDF5 {reason}; {remedy}")
    with reading(path, "a localization file", remedy, RegionError):
        localized = _stored(path)
        _check(localized)
        return localized


def _stored(path: Path) -> Localized:
    with h5py.File(path, "r") as file:
        if (form := file.attrs.get("format")) != FORMAT:
            raise ValueError(f"its format is {form!r}, not {FORMAT!r}")
        values = columns.read(file, COLUMNS)
        texts = {c.key: tuple(values[c.key]) for c in COLUMNS if c.dtype == TEXT}
        return Localized(
            **(values | texts),
            similarity=str(file.attrs["similarity"]),
            provenance=decode(file.attrs["provenance"], dict[str, Any]),
        )


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
    for column in COLUMNS:
        if column.dtype == "<f4" and not np.isfinite(getattr(data, column.key)).all():
            raise ValueError(f"{column.name!r} has values that are not finite")
    if data.similarity not in SIMILARITIES:
        raise ValueError(f"the similarity {data.similarity!r} is unknown")


def _check_firsts(what: str, firsts: RowNumbers, of: int, number: int) -> None:
    """Check the starts of lists, and their common end."""
    if len(firsts) != of + 1 or firsts[0] or firsts[-1] != number or (np.diff(firsts) < 0).any():
        raise ValueError(f"its lists do not divide {number} {what} among {of}")
