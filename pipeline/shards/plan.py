"""Which rows go into which shard: pure arithmetic, no files."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.errors import PipelineError

# A shard is about 0.5-1 GiB, so that it can be shared, hashed and re-made in reasonable time.
SHARD_BYTES = 1 << 30
MAX_ROWS_PER_SHARD = 65_536


class PlanError(PipelineError):
    """Rows cannot be laid out as asked."""


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `stop` - 1 of a feature set."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def batches(self, size: int) -> Iterator["Span"]:
        """Cut the span into spans of `size` rows; the last may be shorter."""
        for start in range(self.start, self.stop, size):
            yield Span(start, min(start + size, self.stop))


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """`rows` rows in shards of `rows_per_shard`, the last one shorter if it does not fit."""

    rows: int
    rows_per_shard: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.rows_per_shard < 1:
            raise PlanError(
                f"cannot plan {self.rows} rows in shards of {self.rows_per_shard}: both must be at "
                "least 1; is the dataset, its split or the limit empty?"
            )

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.rows // self.rows_per_shard)

    def span(self, shard: int) -> Span:
        """Return the rows of shard number `shard`, from 0."""
        start = shard * self.rows_per_shard
        return Span(start, min(start + self.rows_per_shard, self.rows))

    def shard_of(self, row: int) -> int:
        """Return the number of the shard that holds `row`."""
        return row // self.rows_per_shard

    def file_name(self, shard: int) -> str:
        """Return the shard's file name, such as "shard-00003-of-00012.h5"."""
        return f"shard-{shard:05d}-of-{self.shards:05d}.h5"


def default_rows_per_shard(row_bytes: int) -> int:
    """Return the largest power of two of rows that fits in a shard, at most 65,536."""
    rows = 1
    while rows < MAX_ROWS_PER_SHARD and 2 * rows * row_bytes <= SHARD_BYTES:
        rows *= 2
    return rows
