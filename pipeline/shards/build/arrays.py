"""Feature sets from arrays and from functions that give rows."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.progress import Progress, no_progress
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.format import FeatureHeader, RowBlock
from pipeline.shards.index import FeatureIndex

_BLOCK_BYTES = 1 << 24


def build_from_rows(
    out: str | Path,
    header: FeatureHeader,
    ids: Sequence[str],
    rows: Callable[[int, int], RowBlock],
    *,
    rows_per_shard: int | None = None,
    compress: bool = False,
    inputs: object = None,
    progress: Progress = no_progress,
) -> FeatureIndex:
    """Build and publish a feature set; a run that was stopped goes on where it was.

    Parameters
    ----------
    out, header, ids, rows_per_shard, compress, inputs : see `ShardBuild`.
    rows : gives rows `start` to `stop` - 1, both in one shard and about 16 MiB at most.
    progress : called with rows done, rows in all, and 0.
    """
    size = max(1, _BLOCK_BYTES // max(1, header.row_bytes))
    with ShardBuild(out, header, ids, rows_per_shard, compress, inputs) as build:
        for span in build.pending():
            for part in span.batches(size):
                build.append(part.start, rows(part.start, part.stop))
                progress(build.rows_done, len(ids), 0)
        return build.publish()
