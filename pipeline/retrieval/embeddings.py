"""Embeddings of images and captions in one space, with ids and their similarity.

A row is one vector, or a set of vectors (the cells of an image, the words of a caption) if the
similarity compares sets. `pipeline.retrieval.embedding_file` reads and writes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.quantised.codes import QuantisedRows
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.store.packed import TextIndex, repeated_texts
from pipeline.store.wording import counted

_BLOCK_NUMBERS = 1 << 22


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of images and captions in one space, joined by ids.

    Parameters
    ----------
    image_ids : sequence of str. Unique image ids.
    image_embeddings : (images, dim) float32, finite; (images, parts, dim) if the similarity
        compares sets: absent parts are zero vectors.
    caption_ids : sequence of str. Unique caption ids; may be empty.
    caption_image_ids : sequence of str. Image id of each caption. An image without a caption is in
        the gallery but not a query.
    caption_embeddings : (captions, dim) or (captions, parts, dim) likewise, with the same dim and
        any number of parts.
    similarity : str. "cosine", "euclidean" (minus the squared distance), "dot", "order" (Vendrov et
        al. 2016) or, for sets, a cross attention "scan-..." (Lee et al. 2018).
    provenance : dict. Origin of the rows as JSON values; may be empty.

    Raises
    ------
    EmbeddingsError
        A condition above is violated. The first few ids are named.

    Examples
    --------
    >>> space = pipeline.Embeddings(
    ...     ["a.jpg", "b.jpg"], np.eye(2, dtype=np.float32), ["a.jpg#0"], ["a.jpg"],
    ...     np.array([[1, 0]], np.float32), similarity="cosine", provenance={},
    ... )
    >>> space.query_ids[:], space.image_of_caption
    (['a.jpg'], array([0]))
    """

    image_ids: Sequence[str]
    image_embeddings: npt.NDArray[np.float32]
    caption_ids: Sequence[str]
    caption_image_ids: Sequence[str]
    caption_embeddings: npt.NDArray[np.float32]
    similarity: str
    provenance: dict[str, Any]

    def __post_init__(self) -> None:
        ndim = num_axes(self.similarity)
        _check_side("images", self.image_ids, self.image_embeddings, ndim, self.similarity)
        _check_side("captions", self.caption_ids, self.caption_embeddings, ndim, self.similarity)
        if self.image_embeddings.shape[-1] != self.caption_embeddings.shape[-1]:
            raise EmbeddingsError(
                f"images have {self.image_embeddings.shape[-1]} dimensions and captions "
                f"{self.caption_embeddings.shape[-1]}; both must be in one space: embed both with "
                "one head"
            )
        if len(self.caption_image_ids) != len(self.caption_ids):
            raise EmbeddingsError(
                f"captions: {len(self.caption_ids)} ids but {len(self.caption_image_ids)} image "
                "ids found; expected one image id per caption"
            )
        rows = self.image_of_caption
        if (rows < 0).any():
            named = (self.caption_image_ids[row] for row in np.flatnonzero(rows < 0).tolist())
            unknown_ids = list(dict.fromkeys(named))
            raise EmbeddingsError(
                f"captions: image_id names {len(unknown_ids)} missing images, first "
                f"{unknown_ids[:5]}"
            )

    @cached_property
    def image_of_caption(self) -> npt.NDArray[np.int64]:
        """Row of each caption's image, (captions,)."""
        return TextIndex(self.image_ids).rows_of(self.caption_image_ids, len(self.caption_ids))

    @cached_property
    def captioned(self) -> npt.NDArray[np.int64]:
        """Rows of the images with a caption, ascending: the image queries."""
        return np.unique(self.image_of_caption)

    @property
    def query_ids(self) -> Sequence[str]:
        """Ids of the images with a caption, in row order."""
        if len(self.captioned) == len(self.image_ids):
            return self.image_ids
        return [self.image_ids[row] for row in self.captioned.tolist()]


def num_axes(similarity: str) -> int:
    """Return the number of axes of embeddings: 2, or 3 for a similarity of sets."""
    if not isinstance(similarity, str) or similarity not in SIMILARITIES:
        raise EmbeddingsError(
            f"similarity {similarity!r} is not known; expected one of " + ", ".join(SIMILARITIES)
        )
    return 3 if SIMILARITIES[similarity].sets else 2


def _check_side(
    side: str, ids: Sequence[str], rows: npt.NDArray[np.float32], ndim: int, similarity: str
) -> None:
    if rows.ndim != ndim or rows.dtype != np.float32:
        shape = "(rows, parts, dim)" if ndim == 3 else "(rows, dim)"
        raise EmbeddingsError(
            f"{side}: embeddings are {rows.dtype} of shape {rows.shape}, expected float32 of "
            f"shape {shape} for the similarity {similarity}"
        )
    if (not ids and side == "images") or 0 in rows.shape[1:]:
        raise EmbeddingsError(f"{side}: found no rows, or rows without a dimension ({rows.shape})")
    if len(ids) != len(rows):
        raise EmbeddingsError(f"{side}: {len(ids)} ids for {len(rows)} rows; expected one per row")
    if repeated := repeated_texts(ids):
        raise EmbeddingsError(
            f"{side}: {len(repeated)} ids occur more than once, first {repeated[:5]}"
        )
    if unusable := [i for i in ids if not i or "\x00" in i]:
        raise EmbeddingsError(f"{side}: empty ids or ids with a NUL, first {unusable[:5]}")
    if isinstance(rows, QuantisedRows) and rows.codes.dtype.kind == "i":
        return  # finite for any codes
    step = max(1, _BLOCK_NUMBERS // max(1, int(np.prod(rows.shape[1:]))))
    bad = [
        start + row
        for start in range(0, len(rows), step)
        for row in np.flatnonzero(
            ~np.isfinite(rows[start : start + step]).all(axis=tuple(range(1, ndim)))
        ).tolist()
    ]
    if bad:
        raise EmbeddingsError(
            f"{side}: {counted(len(bad), 'row has', 'rows have')} NaN or infinite numbers, first "
            f"{[ids[i] for i in bad[:5]]}; their rank is undefined, so remove them"
        )
