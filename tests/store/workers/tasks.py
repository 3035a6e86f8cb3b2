"""A task without torch: shards of the made feature set, slowly if asked."""

import os
import resource
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.store.builder import partial_shard
from pipeline.store.builder.compute import build_on_workers
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.builder.job import ShardJob, ShardResult, make_shard
from pipeline.store.builder.job_ref import JobRef
from pipeline.store.progress import FORWARD, OnProgress, Progress, Stopwatch, no_progress
from pipeline.store.shards.format import RowBlock
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.plan import Span
from pipeline.store.workers.place import Executor
from tests.store.shards.factories import ROWS_PER_SHARD, block_of, header, ids

FAILED, BATCH = (3, 17), 4


def make_made_shard(ref: JobRef, shard: int, on_progress: OnProgress) -> ShardResult:
    """Make one shard of the made set."""
    # `_compute` is not called for a shard whose pieces have all rows.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return make_shard(ref, shard, _compute, on_progress)


def _compute(
    job: ShardJob, spans: Sequence[Span], watch: Stopwatch
) -> Iterator[tuple[int, RowBlock]]:
    limit = job.settings.get("largest_file", resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    partial_shard.PIECE_SECONDS = job.settings.get("piece_seconds", 20.0)
    for batch in (batch for span in spans for batch in span.batches(BATCH)):
        with watch.timing(FORWARD):
            time.sleep(job.settings.get("seconds", 0))
        numbers = [
            int(image_id[:-4].split("-")[1]) for image_id in job.ids[batch.start : batch.stop]
        ]
        yield batch.start, block_of(numbers, FAILED)


def build_made(
    out: Path,
    rows: int,
    executor: Executor,
    progress: Progress = no_progress,
    task: Callable[..., ShardResult] = make_made_shard,
    **how: Any,
) -> FeatureIndex:
    """Build the made set on workers.

    `how` may hold `seconds` that a batch takes, `piece_seconds`, and the bytes of the
    `largest_file` that a worker may write.
    """
    with ShardBuild(out, header(), ids(rows), ROWS_PER_SHARD) as build:
        return build_on_workers(build, lambda rows: None, how, task, executor, progress)


def serial(
    task: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
    on_progress: OnProgress,
    stop: Callable[[], None],
) -> Generator[Any, None, None]:
    """Executor tasks over no workers at all: one after the other, last job first."""
    try:
        for job in reversed(jobs):
            yield task(*job, on_progress)
    finally:
        stop()


def hoard(ref: JobRef, shard: int, on_progress: OnProgress) -> ShardResult:
    """Take more and more memory."""
    held = []
    while True:
        held.append(os.urandom(1 << 20) * 16)
        time.sleep(0.01)


def run_out(ref: JobRef, shard: int, on_progress: OnProgress) -> ShardResult:
    """Ask for more memory than there is."""
    raise MemoryError("Unable to allocate 8.00 EiB")
