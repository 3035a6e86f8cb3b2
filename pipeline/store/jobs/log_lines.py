"""Log lines shared by all jobs that compute features."""

from pipeline.store.shards.format import FeatureHeader
from pipeline.store.wording import counted


def size_line(header: FeatureHeader, rows: int, shards: int, done: int) -> str:
    """Return the log line on shape, size and finished rows of a set."""
    return (
        f"{counted(rows, 'row')} of {header.row_shape} {header.dtype}: "
        f"{rows * header.row_bytes / 1e6:.1f} MB in {counted(shards, 'shard')}; "
        f"{counted(done, 'row is', 'rows are')} done"
    )


def rate_line(computed: int, unit: str, seconds: float, failed: int) -> str:
    """Return the log line on computed rows and their rate."""
    rate = computed / max(seconds, 1e-9)
    return f"{computed} computed in {seconds:.1f} s ({rate:.1f} {unit}s/s), {failed} failed"
