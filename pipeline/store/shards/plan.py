"""Assignment of rows to shards: pure functions, no file access."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from pipeline.store.shards.format import ShardError

# About 0.5-1 GiB per shard: small enough to share, hash and recompute.
SHARD_BYTES = 1 << 30
MAX_ROWS_PER_SHARD = 65_536


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `stop` - 1 of a feature set."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def batches(self, size: int) -> Iterator["Span"]:
        """Split the span into spans of `size` rows; the last may be shorter."""
        for start in range(self.start, self.stop, size):
            yield Span(start, min(start + size, self.stop))


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Division of rows into shards of equal size; the last one may be shorter."""

    rows: int
    rows_per_shard: int
    older: "ShardPlan | None" = None
    """Plan of the first shards, which an extended set keeps unchanged."""

    def __post_init__(self) -> None:
        if self.rows <= self._older_rows or self.rows_per_shard < 1:
            raise ShardError(
                f"cannot plan {self.rows - self._older_rows} rows in shards of "
                f"{self.rows_per_shard}: both must be at least 1; is the dataset, its split or "
                "the limit empty?"
            )

    @property
    def _older_rows(self) -> int:
        return self.older.rows if self.older else 0

    @property
    def _older_shards(self) -> int:
        return self.older.shards if self.older else 0

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self._older_shards - (self._older_rows - self.rows) // self.rows_per_shard

    def span(self, shard: int) -> Span:
        """Return the row range of a shard, counted from 0."""
        if self.older and shard < self.older.shards:
            return self.older.span(shard)
        start = self._older_rows + (shard - self._older_shards) * self.rows_per_shard
        return Span(start, min(start + self.rows_per_shard, self.rows))

    def shard_of(self, row: int) -> int:
        """Return the number of the shard that holds `row`."""
        if self.older and row < self.older.rows:
            return self.older.shard_of(row)
        return self._older_shards + (row - self._older_rows) // self.rows_per_shard

    def shards_then(self, shard: int) -> int:
        """Return the number of shards when this one was written, which the shard records."""
        if self.older and shard < self.older.shards:
            return self.older.shards_then(shard)
        return self.shards

    def file_name(self, shard: int) -> str:
        """Return the shard's file name, such as "shard-00003-of-00012.h5"."""
        return f"shard-{shard:05d}-of-{self.shards_then(shard):05d}.h5"


def plan_of(shards: Sequence[tuple[str, int]], rows_per_shard: int) -> ShardPlan:
    """Return the plan that produces shards of these file names and row counts, in row order."""
    # Each run that appended shards recorded their number then: its shards have one plan.
    plan: ShardPlan | None = None
    for _, group in groupby(shards, lambda shard: re.findall(r"-of-(\d+)", shard[0])):
        sizes = [rows for _, rows in group]
        plan = ShardPlan((plan.rows if plan else 0) + sum(sizes), sizes[0], plan)
    if plan is None:
        raise ShardError("found no shards; a feature set has at least one")
    plan = replace(plan, rows_per_shard=rows_per_shard)
    # Lazy: an altered index may imply any number of shards.
    for (file, rows), shard in zip(shards, range(plan.shards), strict=False):
        expected = plan.file_name(shard), len(plan.span(shard))
        if (file, rows) != expected:
            raise ShardError(
                f"found {file} with {rows} rows, expected {expected[0]} with {expected[1]} rows"
            )
    if plan.shards != len(shards):
        raise ShardError(f"found {len(shards)} shards, expected {plan.shards}")
    return plan


def runs(rows: np.ndarray) -> list[Span]:
    """Return the contiguous spans of ascending unique row numbers (n,)."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    return [Span(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, cuts) if run.size]


def default_rows_per_shard(row_bytes: int) -> int:
    """Return the largest power of two of rows that fits into a shard, at most 65,536."""
    rows = 1
    while rows < MAX_ROWS_PER_SHARD and 2 * rows * row_bytes <= SHARD_BYTES:
        rows *= 2
    return rows
