"""Assignment of rows to shards: pure functions, no file access."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np

from pipeline.store.shards.format import ShardError

# 128-256 MiB per shard: small enough to share, hash and recompute, and to be kept in memory until
# it is complete, so that its rows need no journal where they are computed fast.
SHARD_BYTES = 1 << 28
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
    """Division of rows into shards."""

    starts: tuple[int, ...]
    """First row of each shard, and last the number of rows."""
    counts: tuple[int, ...]
    """Number of shards when each one was written, which the shard records."""
    rows_per_shard: int
    """Rows of every shard but the last, for the shards appended last; of the largest shard, if each
    has the rows of an input file."""

    @staticmethod
    def equal(rows: int, rows_per_shard: int, older: "ShardPlan | None" = None) -> "ShardPlan":
        """Return a plan of shards of one size; the last may be smaller.

        The first shards are those of `older`, which an extended set keeps unchanged.
        """
        first = older.rows if older else 0
        if rows <= first or rows_per_shard < 1:
            raise ShardError(
                f"cannot plan {rows - first} rows in shards of {rows_per_shard}: both must be at "
                "least 1; is the dataset, its split or the limit empty?"
            )
        starts = (*(older.starts[:-1] if older else ()), *range(first, rows, rows_per_shard))
        counts = older.counts if older else ()
        counts += (len(starts),) * (len(starts) - len(counts))
        return ShardPlan((*starts, rows), counts, rows_per_shard)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.starts[-1]

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.counts)

    @property
    def extended(self) -> bool:
        """Whether shards were appended to finished ones."""
        return self.counts[0] < self.shards

    def span(self, shard: int) -> Span:
        """Return the row range of a shard, counted from 0."""
        return Span(self.starts[shard], self.starts[shard + 1])

    def shard_of(self, row: int) -> int:
        """Return the number of the shard that holds `row`."""
        return bisect_right(self.starts, row) - 1

    def file_name(self, shard: int) -> str:
        """Return the shard's file name, such as "shard-00003-of-00012.h5"."""
        return shard_name(shard, self.counts[shard])


def shard_name(shard: int, shards: int) -> str:
    """Return the file name of shard `shard` of `shards`."""
    return f"shard-{shard:05d}-of-{shards:05d}.h5"


def plan_of(shards: Sequence[tuple[str, int]], rows_per_shard: int) -> ShardPlan:
    """Return the plan that produces shards of these file names and row counts, in row order."""
    if not shards:
        raise ShardError("found no shards; a feature set has at least one")
    sizes = [rows for _, rows in shards]
    named = (re.search(r"-of-(\d+)", file) for file, _ in shards)
    counts = [int(match[1]) if match else len(shards) for match in named]
    # Each run that appended shards recorded their number then. Its shards have one size, and the
    # last may be smaller; or each has the rows of an input file, the largest `rows_per_shard`.
    of_files = rows_per_shard == max(sizes)
    for count, run in groupby(range(len(shards)), counts.__getitem__):
        numbers = [*run]
        last = numbers[-1]
        size = rows_per_shard if last == len(shards) - 1 else sizes[numbers[0]]
        for number in numbers:
            file, rows = shards[number]
            expected = shard_name(number, count)
            if file != expected or not (
                of_files or rows == size or (rows < size and number == last)
            ):
                raise ShardError(
                    f"found {file} with {rows} rows, expected {expected} with {size} rows"
                )
        if last != count - 1:
            raise ShardError(f"found {last + 1} shards, expected {count}")
    return ShardPlan((0, *accumulate(sizes)), tuple(counts), rows_per_shard)


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
