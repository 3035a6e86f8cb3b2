"""A feature set made by workers: its pending shards are submitted, awaited, checked and published.

It does not know how tasks reach workers: `pipeline.cluster` gives the `Executor`.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeVar

from pipeline.progress import WRITE, Progress, Stopwatch, no_progress
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.shards.resume.job import ShardResult
from pipeline.shards.resume.job_ref import JobRef, OnProgress

Result = TypeVar("Result")


class Executor(Protocol):
    """Runs a task on workers, once for each of some jobs."""

    def __call__(
        self,
        task: Callable[..., Result],
        jobs: Sequence[tuple[Any, ...]],
        on_progress: OnProgress,
        stop: Callable[[], None],
    ) -> Generator[Result, None, None]:
        """Yield the result of `task(*job, on_progress)` for each job, as results come.

        Parameters
        ----------
        task : a function of a module, so that it can be sent by name. A job whose worker was lost
            is run again, perhaps while the lost worker goes on.
        jobs : arguments, few bytes each.
        on_progress : called in this thread with the arguments that a task gave to its own
            `on_progress`.
        stop : called once when no more results are wanted; it makes running tasks end soon.
        """


# A function of a module that makes one shard of a job.
ShardTask = Callable[[JobRef, int, OnProgress], ShardResult]


def build_on_workers(
    build: ShardBuild,
    sources_of: Callable[[Span], Any],
    settings: dict[str, Any],
    task: ShardTask,
    executor: Executor,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Have the pending shards of a feature set made by workers, and publish it.

    Parameters
    ----------
    build : an entered `ShardBuild`.
    sources_of, settings : see `ShardBuild.submitted`.
    task : makes one shard.
    executor : runs the tasks.
    progress : called as workers report how far they are.
    watch : the seconds of all workers by stage are added to it.

    Raises
    ------
    ShardError
        A shard cannot be made, or is not seen here; finished rows are kept.
    """
    watch = watch or Stopwatch()
    total = len(build.ids)
    done_before = build.rows_done
    computed = failed = 0
    reported: dict[int, tuple[int, int]] = {}

    def on_progress(shard: int, rows: int, failures: int) -> None:
        if shard in waiting:
            reported[shard] = rows, failures
            show()

    def show() -> None:
        under_way = sum(max(0, rows - held[shard]) for shard, (rows, _) in reported.items())
        failing = sum(failures for _, failures in reported.values())
        progress(done_before + computed + under_way, total, failed + failing)

    waiting = set(build.pending_shards())
    missing = dict.fromkeys(waiting, 0)
    for span in build.pending():
        missing[build.plan.shard_of(span.start)] += len(span)
    held = {shard: len(build.plan.span(shard)) - missing[shard] for shard in waiting}
    show()
    with build.submitted(sources_of, settings) as job:
        jobs = [(job.refs[shard], shard) for shard in sorted(waiting)]
        with closing(executor(task, jobs, on_progress, job.cancel)) as results:
            for result in results:
                with watch.timing(WRITE):
                    build.accept(result)
                watch.add_all(result.seconds)
                waiting.discard(result.shard)
                failed += result.entry.failed_rows
                reported.pop(result.shard, None)
                computed += missing[result.shard]
                show()
    with watch.timing(WRITE):
        return build.publish()
