"""The localization file: proposals and phrases of a split in one space, and what was asked.

It holds all that evaluation, the report and the search need, so that none of them reads features
or a head again. docs/regions.md has the layout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from pipeline.files import appearing_whole, parse_json, require_held
from pipeline.hashing import canonical_json
from pipeline.localization import LocalizationError
from pipeline.retrieval.similarity import SIMILARITIES

FORMAT, FORMAT_VERSION = "pipeline-localization", 1

Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Localized:
    """Images with their proposals, phrases, and queries: a phrase in an image.

    Attributes
    ----------
    image_ids : in the order of the dataset.
    sizes : (images, 2) int64, width and height in pixels.
    first_region : (images + 1,) int64, the first proposal of each image; their number last. An
        image may have none.
    boxes : (regions, 4) float32, x0 y0 x1 y1 in pixels of the image, from 0, right and bottom
        exclusive.
    regions : (regions, dim) float32 embeddings.
    phrase_texts : the distinct phrases.
    phrases : (phrases, dim) float32 embeddings.
    known : (phrases,) bool, whether the encoder knows a word of the phrase.
    query_ids : one a query.
    query_image, query_phrase : (queries,) int64 row numbers.
    query_types : (queries,) kinds of thing, joined by "/"; may be empty.
    first_truth : (queries + 1,) int64, the first true box of each query; their number last.
    truth : (n, 4) float32 true boxes, each of which is right by itself.
    similarity : name of the similarity of regions and phrases.
    provenance : what made these rows, as JSON values.
    """

    image_ids: tuple[str, ...]
    sizes: RowNumbers
    first_region: RowNumbers
    boxes: Floats
    regions: Floats
    phrase_texts: tuple[str, ...]
    phrases: Floats
    known: npt.NDArray[np.bool_]
    query_ids: tuple[str, ...]
    query_image: RowNumbers
    query_phrase: RowNumbers
    query_types: tuple[str, ...]
    first_truth: RowNumbers
    truth: Floats
    similarity: str
    provenance: dict[str, Any]

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
        """Return how alike an image's proposals and some phrases are.

        Parameters
        ----------
        image : its row.
        phrases : (p, dim) embeddings.

        Returns
        -------
        (proposals, p) float64, rounded to float32; greater is more alike.
        """
        similarity = SIMILARITIES[self.similarity]
        regions = self.regions[self.regions_of(image)]
        if not (len(regions) and len(phrases)):
            return np.zeros((len(regions), len(phrases)))
        found = similarity.between(similarity.prepare(regions), similarity.prepare(phrases))
        # Sums depend on the shape of a product in their last digits, which would order equal boxes.
        return found.astype(np.float32).astype(np.float64)


def write_localized(path: str | Path, localized: Localized) -> None:
    """Write a localization file, whole or not at all; the same content gives the same bytes."""
    found = localized
    arrays: Mapping[str, Any] = {
        "images/id": found.image_ids,
        "images/size": found.sizes,
        "images/first_region": found.first_region,
        "regions/box": found.boxes,
        "regions/embedding": found.regions,
        "phrases/text": found.phrase_texts,
        "phrases/embedding": found.phrases,
        "phrases/known": found.known,
        "queries/id": found.query_ids,
        "queries/image": found.query_image,
        "queries/phrase": found.query_phrase,
        "queries/types": found.query_types,
        "queries/first_truth": found.first_truth,
        "truth/box": found.truth,
    }
    with (
        appearing_whole(Path(path)) as part,
        h5py.File(part, "w", libver="earliest", track_order=False) as file,
    ):
        for name, values in arrays.items():
            if isinstance(values, tuple):
                kind = h5py.string_dtype()
                file.create_dataset(name, data=list(values), dtype=kind, track_times=False)
            else:
                file.create_dataset(name, data=values, track_times=False)
        file.attrs["format"] = FORMAT
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["similarity"] = found.similarity
        file.attrs["provenance"] = canonical_json(found.provenance)


def read_localized(path: str | Path) -> Localized:
    """Read a localization file.

    Raises
    ------
    LocalizationError
        The file is missing, of another format, or damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise LocalizationError(f"{path} not found; `pipeline localize` makes localization files")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise LocalizationError(
                    f"{path} is no localization file (its format is "
                    f"{file.attrs.get('format')!r}); `pipeline localize` makes one"
                )

            def texts(name: str) -> tuple[str, ...]:
                return tuple(require_held(file[name]).asstr()[()])

            def numbers(name: str) -> np.ndarray:
                return np.asarray(require_held(file[name])[()])

            found = Localized(
                texts("images/id"),
                numbers("images/size"),
                numbers("images/first_region"),
                numbers("regions/box"),
                numbers("regions/embedding"),
                texts("phrases/text"),
                numbers("phrases/embedding"),
                numbers("phrases/known"),
                texts("queries/id"),
                numbers("queries/image"),
                numbers("queries/phrase"),
                texts("queries/types"),
                numbers("queries/first_truth"),
                numbers("truth/box"),
                str(file.attrs["similarity"]),
                parse_json(file.attrs["provenance"]),
            )
    # h5py raises the last four for groups and links in the place of datasets, and absurd shapes.
    except (
        OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError,
        MemoryError,
    ) as error:  # fmt: skip
        raise LocalizationError(
            f"{path} is damaged ({error!r}); run `pipeline localize` again"
        ) from error
    _check(found, path)
    return found


def _check(found: Localized, path: Path) -> None:
    regions, queries = len(found.boxes), len(found.query_ids)
    if not (
        found.similarity in SIMILARITIES
        and len(found.first_region) == len(found.image_ids) + 1
        and found.first_region[-1] == regions == len(found.regions)
        and len(found.phrases) == len(found.phrase_texts) == len(found.known)
        and queries == len(found.query_image) == len(found.query_phrase) == len(found.query_types)
        and len(found.first_truth) == queries + 1
        and found.first_truth[-1] == len(found.truth)
        and np.isfinite(found.regions).all()
        and np.isfinite(found.phrases).all()
    ):
        raise LocalizationError(
            f"{path} contradicts itself: {len(found.image_ids)} images, {regions} regions, "
            f"{len(found.phrase_texts)} phrases and {queries} queries do not fit its lists, or an "
            "embedding is not finite; run `pipeline localize` again"
        )
