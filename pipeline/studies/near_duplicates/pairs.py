"""All pairs of rows whose cosine reaches a threshold: exact, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.similarity import Vectors
from pipeline.store.progress import Progress, no_progress
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.studies.near_duplicates.parts import Block, Subset, blocks_of

DECIMALS = 6
"""Decimals of a score: the precision of float32 vectors of length 1; equal rows have cosine 1."""

_CHUNK_ELEMENTS = 1 << 22
# A set may have thousands of equal rows, such as a placeholder for missing images.
_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows, numbered over all parts."""

    first: RowNumbers  # (n,) int64; `first` is below `second`
    second: RowNumbers
    scores: npt.NDArray[np.float64]  # (n,) float64, cosines rounded to `DECIMALS`


def exact_pairs(
    parts: Sequence[Subset],
    threshold: float,
    *,
    between: bool,
    block_rows: int | None = None,
    progress: Progress = no_progress,
) -> Iterator[Pairs]:
    """Compare all rows and yield the pairs that reach the threshold, two blocks in memory."""
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
        # Candidates by a float32 product, with a margin above any rounding error. `scored` computes
        # them in float64, so that a score depends only on its two rows, not on their blocks.
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
    """Score candidates (k,) of unit vectors (n, dim) and (m, dim); keep those at the threshold."""
    scores = np.empty(len(first))
    step = max(1, _CHUNK_ELEMENTS // rows.shape[1])
    for start in range(0, len(first), step):
        some = slice(start, start + step)
        one, other = (side.astype(np.float64) for side in (rows[first[some]], others[second[some]]))
        scores[some] = np.vecdot(one, other)
    scores = np.round(scores, DECIMALS)
    above = scores >= threshold
    return Pairs(first[above] + first_row, second[above] + second_row, scores[above])


def margin(dim: int) -> float:
    """Return the maximal difference between a float32 cosine and its rounded score."""
    # A sum of `dim` float32 products is off by at most `dim` units of rounding times the sum of
    # their magnitudes (Higham 2002, eq. 3.5), which is at most 1 for vectors of length 1.
    return (dim + 2) * 2.0**-23 + 10.0**-DECIMALS


def _read(parts: Sequence[Subset], block: Block) -> Vectors:
    return parts[block.part].vectors(block.start, block.stop)
