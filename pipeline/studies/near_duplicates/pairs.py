"""All pairs of rows whose cosine reaches a threshold: exact, block by block.

A float32 product of two blocks selects candidates, with a margin above any rounding error; each of
these is then scored in float64. A score therefore depends only on its two rows, not on row order or
block size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.store.progress import Progress, no_progress
from pipeline.studies.near_duplicates.parts import Block, Part, RowNumbers, Vectors, blocks_of

DECIMALS = 6
"""Decimals of a score: the precision of float32 vectors of length 1; equal rows have cosine 1."""

_CHUNK_ELEMENTS = 1 << 22
# A set may have thousands of equal rows, such as a placeholder for missing images.
_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows, numbered over all parts.

    Attributes
    ----------
    first, second : (n,) int64. `first` is below `second`.
    scores : (n,) float64. Cosines rounded to `DECIMALS`.
    """

    first: RowNumbers
    second: RowNumbers
    scores: npt.NDArray[np.float64]


def exact_pairs(
    parts: Sequence[Part],
    threshold: float,
    *,
    between: bool,
    block_rows: int | None = None,
    progress: Progress = no_progress,
) -> Iterator[Pairs]:
    """Compare all rows with each other and yield the pairs that reach the threshold.

    Memory holds two blocks and their product; a part is read once per block.

    Parameters
    ----------
    parts : sequence of Part. The rows.
    threshold : float. Minimal cosine of a pair, above 0 and at most 1.
    between : bool. Compare only rows of different parts.
    block_rows : int or None. Rows per block; None: see `blocks_of`. Does not affect the pairs.
    progress : callable. Called with the block comparisons done and the total.
    """
    blocks = list(blocks_of(parts, block_rows))
    tasks = [
        (one, other)
        for at, one in enumerate(blocks)
        for other in blocks[at:]
        if not between or one.part != other.part
    ]
    read: Block | None = None
    for done, (one, other) in enumerate(tasks, 1):
        if one != read:
            read, rows = one, _read(parts, one)
        others = rows if other == one else _read(parts, other)
        first, second = np.nonzero(rows @ others.T >= threshold - margin(rows.shape[1]))
        if other == one:
            first, second = first[first < second], second[first < second]
        for start in range(0, len(first), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            yield scored(rows, others, first[some], second[some], threshold, one.first, other.first)
        progress(done, len(tasks), 0)


def scored(
    rows: Vectors,
    others: Vectors,
    first: RowNumbers,
    second: RowNumbers,
    threshold: float,
    first_row: int = 0,
    second_row: int = 0,
) -> Pairs:
    """Return the candidates that reach the threshold, with their scores.

    Parameters
    ----------
    rows, others : (n, dim) and (m, dim). Vectors of length 1.
    first, second : (k,). Positions of the candidates in `rows` and `others`.
    threshold : float. Minimal cosine.
    first_row, second_row : int. Numbers of the first rows of `rows` and `others`.
    """
    scores = np.empty(len(first))
    step = max(1, _CHUNK_ELEMENTS // rows.shape[1])
    for start in range(0, len(first), step):
        some = slice(start, start + step)
        one, other = (side.astype(np.float64) for side in (rows[first[some]], others[second[some]]))
        scores[some] = np.vecdot(one, other)
    scores = np.round(scores, DECIMALS)
    kept = scores >= threshold
    return Pairs(first[kept] + first_row, second[kept] + second_row, scores[kept])


def margin(dim: int) -> float:
    """Return the maximal difference between a float32 cosine and its rounded score.

    The error of a sum of `dim` float32 products is at most `dim` units of rounding times the sum of
    their magnitudes (Higham 2002, eq. 3.5), which is at most 1 for vectors of length 1.
    """
    return (dim + 2) * 2.0**-23 + 10.0**-DECIMALS


def _read(parts: Sequence[Part], block: Block) -> Vectors:
    return parts[block.part].vectors(block.start, block.stop)
