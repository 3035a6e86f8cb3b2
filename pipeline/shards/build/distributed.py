"""Making a feature set on workers: its pending shards are ordered, spread, checked and published.

It knows nothing of how tasks reach workers; `Executor` is what `pipeline.cluster` gives.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeVar

from pipeline.progress import WRITE, Progress, Stopwatch, no_progress
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.build.job import JobRef, MadeShard, Tell
from pipeline.shards.index import FeatureIndex

Result = TypeVar("Result")


class Executor(Protocol):
    """Runs a task once for each of some jobs, on whatever workers there are."""

    def __call__(
        self,
        task: Callable[..., Result],
        jobs: Sequence[tuple[Any, ...]],
        told: Callable[[Any], None],
        stop: Callable[[], None],
    ) -> Generator[Result, None, None]:
        """Yield what `task(*job, tell)` returns for each job, as results come.

        Parameters
        ----------
        task : a function of a module, so that it can be sent by name. A job whose worker was lost
            is run again, perhaps while the lost worker goes on.
        jobs : arguments, few bytes each.
        told : called in this thread with what a task gave to `tell`.
        stop : called once when no more results are wanted; it makes running tasks end soon.
        """


# A function of a module that makes one shard of an order.
ShardTask = Callable[[JobRef, int, Tell], MadeShard]


def build_on_workers(
    build: ShardBuild,
    sources: Sequence[Any],
    how: dict[str, Any],
    task: ShardTask,
    executor: Executor,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Have the pending shards of a feature set made by workers and publish it.

    Parameters
    ----------
    build : an entered `ShardBuild`.
    sources, how : see `ShardJob`.
    task : makes one shard.
    executor : where the work goes.
    progress : called as workers say how far they are.
    watch : gets the seconds of all workers by stage.

    Raises
    ------
    ShardError
        A shard cannot be made, or is not seen here; what is done is kept.
    """
    watch = watch or Stopwatch()
    total = len(build.ids)
    done_before = build.rows_done
    made_rows = failed = 0
    there: dict[int, tuple[int, int]] = {}

    def told(message: tuple[int, int, int]) -> None:
        shard, rows, failures = message
        if shard in waiting:
            there[shard] = rows, failures
            show()

    def show() -> None:
        at_work = sum(max(0, rows - held[shard]) for shard, (rows, _) in there.items())
        failing = sum(failures for _, failures in there.values())
        progress(done_before + made_rows + at_work, total, failed + failing)

    waiting = set(build.ordered_shards())
    missing = dict.fromkeys(waiting, 0)
    for span in build.pending():
        missing[build.plan.shard_of(span.start)] += len(span)
    held = {shard: len(build.plan.span(shard)) - missing[shard] for shard in waiting}
    show()
    with build.ordered(sources, how) as ticket:
        jobs = [(ticket, shard) for shard in sorted(waiting)]
        with closing(executor(task, jobs, told, ticket.withdraw)) as results:
            for made in results:
                with watch.timing(WRITE):
                    build.accept(made)
                watch.add_all(made.seconds)
                waiting.discard(made.shard)
                failed += made.entry.failed_rows
                there.pop(made.shard, None)
                made_rows += missing[made.shard]
                show()
    with watch.timing(WRITE):
        return build.publish()
