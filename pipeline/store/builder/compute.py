"""Computing the pending shards of a feature set, in this process or on workers, and publishing it.

Both ways run one task per shard, accept the shards as they arrive, and publish them.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

from pipeline.store.builder.feature_build import WRITERS, ShardBuild
from pipeline.store.builder.job import Compute, ShardResult, compute_shard
from pipeline.store.builder.job_ref import JobRef
from pipeline.store.progress import WRITE, OnProgress, Progress, Stopwatch, no_progress
from pipeline.store.shards.format import RowBlock
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.plan import Span
from pipeline.store.workers.place import Executor

# A module-level function that computes one shard of a job.
ShardTask = Callable[[JobRef, int, OnProgress], ShardResult]


def build_here(
    build: ShardBuild,
    compute: Compute,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Compute the pending rows of an entered build in this process, and publish the set."""
    watch, pending = watch or Stopwatch(), build.pending_shards()
    # Once for all shards, so that the first rows of a shard are computed ahead like all others.
    rows = compute([span for partial in pending.values() for span in partial.missing], watch)

    def next_rows(spans: Sequence[Span], _: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        left = sum(map(len, spans))
        for row, block in rows:
            yield row, block
            left -= len(block)
            if not left:
                return

    jobs = [(shard, partial, build.compress, next_rows) for shard, partial in pending.items()]
    return _build(build, compute_shard, jobs, _writing_behind, lambda: None, progress, watch)


def _writing_behind(
    task: Callable[..., Callable[[], ShardResult]],
    jobs: Sequence[tuple[Any, ...]],
    on_progress: OnProgress,
    stop: Callable[[], None],
) -> Generator[ShardResult, None, None]:
    """Run `compute_shard` in turn, and write shards while the rows of the next are computed."""
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="write") as writing:
        behind: list[Future[ShardResult]] = []
        for job in jobs:
            behind.append(writing.submit(task(*job, on_progress)))
            # Each shard that waits to be written keeps its last rows in memory.
            if len(behind) > WRITERS:
                yield behind.pop(0).result()
        for future in behind:
            yield future.result()


def build_on_workers(
    build: ShardBuild,
    sources_of: Callable[[Span], Any],
    settings: dict[str, Any],
    task: ShardTask,
    executor: Executor,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Compute the pending rows of an entered build on workers, and publish the set."""
    with build.submitted(sources_of, settings) as job:
        jobs = [(job.refs[shard], shard) for shard in build.pending_shards()]
        return _build(build, task, jobs, executor, job.cancel, progress, watch)


def _build(
    build: ShardBuild,
    task: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
    executor: Callable[..., Generator[ShardResult, None, None]],
    stop: Callable[[], None],
    progress: Progress,
    watch: Stopwatch | None,
) -> FeatureIndex:
    """Run the task of each pending shard, accept the shards as they arrive, and publish them."""
    watch = watch or Stopwatch()
    total, done_before = len(build.ids), build.rows_done
    computed = failed = 0
    missing = {
        shard: sum(map(len, partial.missing)) for shard, partial in build.pending_shards().items()
    }
    existing = {shard: len(build.plan.span(shard)) - rows for shard, rows in missing.items()}
    waiting = {*missing}
    # A lost worker's shard is computed again, so a report replaces the shard's previous one.
    reported: dict[int, tuple[int, int]] = {}

    def on_progress(shard: int, rows: int, failures: int) -> None:
        if shard in waiting:
            reported[shard] = rows, failures
            show()

    def show() -> None:
        under_way = sum(max(0, rows - existing[shard]) for shard, (rows, _) in reported.items())
        failing = sum(failures for _, failures in reported.values())
        progress(done_before + computed + under_way, total, failed + failing)

    show()
    with closing(executor(task, jobs, on_progress, stop)) as results:
        for result in results:
            with watch.timing(WRITE):
                build.accept(result)
            watch.add_all(result.seconds)
            waiting.discard(result.shard)
            failed += result.finished.entry.failed_rows
            reported.pop(result.shard, None)
            computed += missing[result.shard]
            show()
    with watch.timing(WRITE):
        return build.publish()
