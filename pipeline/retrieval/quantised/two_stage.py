"""Two-stage search of quantised rows: all rows by their codes, then exact rescoring.

The first stage compares a float query with int8 or float16 codes in float32, or sign bits by their
Hamming distance. Ties are broken by row order. The second stage scores the candidates' stored
vectors as in `pipeline.retrieval.search.nearest`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.quantised.codes import ZERO, QuantisedRows, words_of
from pipeline.retrieval.search import Gallery, Hits, SideName, best_of, nearest, require_comparable
from pipeline.retrieval.similarity import Vectors, unit_rows

RESCORE = {"codes": 4, "bits": 64}
"""Number of first-stage candidates per hit, by storage format."""

_SCANNED = ("cosine", "dot")
_ELEMENTS, _BITS_AT_ONCE = 1 << 20, 1 << 14
_QUERIES_AT_ONCE = 256

Scores = npt.NDArray[Any]  # float32, or int16 for sign bits


def nearest_stored(
    gallery: Gallery, queries: Vectors, asking: SideName, top: int, rescore: int | None = None
) -> Hits:
    """Return the best rows of a quantised gallery, as `search.nearest` of the stored vectors."""
    # The first stage may miss a row; other similarities than these compare all rows exactly.
    rows = gallery.rows
    if not isinstance(rows, QuantisedRows) or gallery.similarity not in _SCANNED:
        return nearest(gallery, queries, asking, top)
    require_comparable(gallery, queries, asking)
    stage = "codes" if rows.bits is None else "bits"
    top = min(top, len(rows))
    number = min(top * (rescore or RESCORE[stage]), len(rows))
    hits = Hits(np.empty((len(queries), top), np.int64), np.empty((len(queries), top), np.float32))
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        batch = queries[start : start + _QUERIES_AT_ONCE]
        for at, candidate_rows in enumerate(candidates(rows, batch, asking, number), start):
            hits.rows[at], hits.scores[at] = best_of(gallery, queries[[at]], candidate_rows, top)
    return hits


def candidates(
    rows: QuantisedRows, queries: Vectors, asking: SideName, number: int
) -> list[npt.NDArray[np.int64]]:
    """Return the row numbers of the best `number` rows of the first stage, for each query."""
    if rows.bits is None:
        blocks, nothing = _products(rows, queries), np.full(number, -np.inf, np.float32)
    else:
        # Not -32768, whose negative is not an int16.
        blocks, nothing = _agreements(rows, queries, asking), np.full(number, -32767, np.int16)
    best: list[tuple[Scores, npt.NDArray[np.int64]]] = [
        (nothing, np.full(number, -1)) for _ in queries
    ]
    for first, block in blocks:
        for query, scores in enumerate(block):
            # Strictly better, and a stable sort: earlier rows come first in a tie.
            best_scores, at = best[query]
            if len(better := np.flatnonzero(scores > best_scores[-1])):
                scores = np.concatenate((best_scores, scores[better]))
                order = np.argsort(-scores, kind="stable")[:number]
                best[query] = scores[order], np.concatenate((at, better + first))[order]
    return [at for _, at in best]


def _products(rows: QuantisedRows, queries: Vectors) -> Iterator[tuple[int, Scores]]:
    """Yield the inner products (queries, n) of unit queries with blocks of rows, in float32.

    The products with the middles are omitted: they are the same for all rows.
    """
    # float32 is enough to choose candidates, which are scored again in float64.
    weights = unit_rows(queries).astype(np.float32)
    if rows.step is not None:
        of_zero = -weights @ rows.quantiser.middles[rows.side]
        weights = weights * rows.step
    size = max(1, _ELEMENTS // rows.shape[1])
    buffer = np.empty((min(size, len(rows)), rows.shape[1]), np.float32)
    for start in range(0, len(rows), size):
        block = rows.codes[start : start + size]
        np.copyto(buffer[: len(block)], block)  # one buffer for all blocks, converted to float32
        products = weights @ buffer[: len(block)].T
        if rows.step is not None:  # the codes of a zero vector are not numbers
            products[:, block[:, 0] == ZERO] = of_zero[:, None]
        yield start, products


def _agreements(
    rows: QuantisedRows, queries: Vectors, asking: SideName
) -> Iterator[tuple[int, Scores]]:
    """Yield minus the Hamming distances (queries, n) of blocks of rows to the queries' signs."""
    signs = rows.quantiser.signs(unit_rows(queries).astype(np.float32), asking)
    query_words = words_of(signs)[:, :, None]
    for start in range(0, len(rows), _BITS_AT_ONCE):
        block = rows.words[:, start : start + _BITS_AT_ONCE]
        yield (
            start,
            np.stack(
                [
                    -np.bitwise_count(block ^ query).sum(axis=0, dtype=np.int16)
                    for query in query_words
                ]
            ),
        )
