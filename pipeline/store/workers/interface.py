"""Executors: run the tasks of a job on workers; `pipeline.store.workers` has those of Dask."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

# Called by a task to report its progress; the caller's function receives the same arguments.
OnProgress = Callable[..., None]


class Executor(Protocol):
    """Runs a task for each job."""

    def __call__(
        self,
        task: Callable[..., Result],
        jobs: Sequence[tuple[Any, ...]],
        on_progress: OnProgress,
        stop: Callable[[], None],
    ) -> Generator[Result, None, None]:
        """Yield the result of `task(*job, on_progress)` for each job, as results arrive.

        Parameters
        ----------
        task : callable. A module-level function, so that workers can import it by name. The job of
            a lost worker is run again, possibly while the lost worker is still running.
        jobs : sequence of tuple. Arguments; only a few bytes each if they are sent to workers.
        on_progress : callable. Called in this thread with the arguments that a task passed to its
            own `on_progress`.
        stop : callable. Called once when no more results are needed; makes running tasks end soon.
        """
