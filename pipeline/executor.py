"""Executors: what runs the tasks of a job on workers; `pipeline.cluster` has those of Dask."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

# A task reports its progress with it; the caller's own function receives the same arguments.
OnProgress = Callable[..., None]


class Executor(Protocol):
    """Runs a task once for each of some jobs."""

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
        task : a function of a module, so that workers can import it by name. A job whose worker was
            lost is run again, perhaps while the lost worker is still running.
        jobs : arguments; few bytes each where they are sent to workers.
        on_progress : called in this thread with the arguments that a task passed to its own
            `on_progress`.
        stop : called once when no more results are needed; it makes running tasks end soon.
        """
