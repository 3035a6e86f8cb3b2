"""Exact search of the nearest images or captions, in chunks of bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.similarity import (
    SIMILARITIES,
    PreparedRows,
    Similarity,
    Vectors,
    range_fault,
)
from pipeline.store.packed import sorted_order
from pipeline.store.shards.row_keys import RowNumbers

SideName = Literal["images", "captions"]

BLOCK_ELEMENTS = 1 << 22
"""Number of gallery values, and of similarities, held in float64 at once: 32 MiB each."""

SYMMETRIC = ("cosine", "euclidean", "dot")
"""Similarities that also compare two images, or two captions."""

_QUERIES_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Gallery:
    """The searched side of an embedding file."""

    side: SideName
    ids: Sequence[str]  # unique id of each row
    rows: Vectors
    similarity: str

    @classmethod
    def of(cls, embeddings: Embeddings, side: SideName) -> "Gallery":
        """Return one side of an embedding file."""
        e = embeddings
        if side == "images":
            return cls(side, e.image_ids, e.image_embeddings, e.similarity)
        return cls(side, e.caption_ids, e.caption_embeddings, e.similarity)

    @cached_property
    def in_order(self) -> npt.NDArray[np.int64]:
        """Row numbers (rows,) in the sorted order of the ids, which breaks ties."""
        return sorted_order(self.ids)


@dataclass(frozen=True, eq=False)
class Hits:
    """The best rows of a gallery for each query, best first."""

    rows: npt.NDArray[np.int64]  # (queries, top) row numbers of the gallery
    scores: npt.NDArray[np.float32]  # (queries, top) similarities


def nearest(
    gallery: Gallery,
    queries: Vectors,
    asking: SideName,
    top: int,
    block_elements: int = BLOCK_ELEMENTS,
    among: RowNumbers | None = None,
) -> Hits:
    """Compare every query with the whole gallery, or its rows `among`, and return the best.

    Ties are in the sorted order of the ids, and similarities are compared as in
    `pipeline.retrieval.ranking.ranks`: the hit at position k (from 0) is the item of rank k. A
    smaller gallery returns all its rows. `block_elements` does not affect the result.
    """
    similarity = SIMILARITIES[gallery.similarity]
    require_comparable(gallery, queries, asking)
    order = gallery.in_order
    if among is not None:
        allowed = np.zeros(len(order), bool)
        allowed[among] = True
        order = order[allowed[order]]
    top, numbers_per_row = min(top, len(order)), gallery.rows[0].size
    batches: list[Hits] = []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        batch = similarity.prepare(queries[start : start + _QUERIES_AT_ONCE])
        size = max(1, block_elements // max(numbers_per_row, len(batch)))
        best = Hits(np.full((len(batch), top), -1), np.full((len(batch), top), -np.inf, np.float32))
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            prepared = similarity.prepare(gallery.rows[rows])
            _improve(best, rows, scores_of(similarity, gallery.side, prepared, batch))
        batches.append(best)
    if not batches:
        return Hits(np.empty((0, top), np.int64), np.empty((0, top), np.float32))
    return Hits(
        np.concatenate([hits.rows for hits in batches]),
        np.concatenate([hits.scores for hits in batches]),
    )


def best_of(
    gallery: Gallery, query: Vectors, rows: npt.NDArray[np.int64], top: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the best of at least `top` rows (n,) for one query, and their scores, as `nearest`."""
    similarity = SIMILARITIES[gallery.similarity]
    # By id first, so that the stable sort breaks ties as `nearest` does.
    rows = np.array(sorted(rows.tolist(), key=gallery.ids.__getitem__), np.int64)
    prepared = similarity.prepare(gallery.rows[rows]), similarity.prepare(query)
    scores = scores_of(similarity, gallery.side, *prepared)[0]
    best = np.argsort(-scores, kind="stable")[:top]
    return rows[best], scores[best]


def require_comparable(gallery: Gallery, queries: Vectors, asking: SideName) -> None:
    """Raise unless queries of a side can be compared with a gallery."""
    if asking == gallery.side and gallery.similarity not in SYMMETRIC:
        raise EmbeddingsError(
            f"the similarity {gallery.similarity} compares an image with a caption, so {asking} "
            f"cannot be searched by {asking}; this needs one of {', '.join(SYMMETRIC)}"
        )
    if queries.ndim != gallery.rows.ndim or queries.shape[-1] != gallery.rows.shape[-1]:
        raise EmbeddingsError(
            f"the queries are of shape {queries.shape}, but the {gallery.side} are "
            f"{gallery.rows.shape}; embed both with one head"
        )


def scores_of(
    similarity: Similarity, side: SideName, gallery: PreparedRows, queries: PreparedRows
) -> npt.NDArray[np.float32]:
    """Return the similarities (queries, rows) float32 of rows prepared by `Similarity.prepare`."""
    # Rounded to float32 so that equal items tie, as in `pipeline.retrieval.ranking.blocks`.
    with np.errstate(over="ignore", invalid="ignore"):
        if side == "images":
            scores = similarity.between(gallery, queries).T.astype(np.float32)
        else:
            scores = similarity.between(queries, gallery).astype(np.float32)
    finite = bool(np.isfinite(scores).all())
    if fault := range_fault(similarity.name, gallery, queries, finite=finite):
        raise EmbeddingsError(fault)
    return scores


def _improve(best: Hits, rows: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]) -> None:
    """Merge scores (queries, n) of rows (n,), which follow all earlier ones in a tie."""
    top = best.rows.shape[1]
    for query, row in enumerate(scores):
        # Strictly better: equal rows so far precede these in the order, and stay before them.
        better = np.flatnonzero(row > best.scores[query, -1])
        if len(better) > 4 * top:  # below that, a partition costs more than it saves
            values = row[better]
            better = better[values >= np.partition(values, -top)[-top]]
        all_scores = np.concatenate((best.scores[query], row[better]))
        all_rows = np.concatenate((best.rows[query], rows[better]))
        order = np.argsort(-all_scores, kind="stable")[:top]
        best.scores[query], best.rows[query] = all_scores[order], all_rows[order]
