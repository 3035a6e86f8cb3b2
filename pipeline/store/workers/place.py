"""Where a job runs: in this process, on local workers, or on the workers of a Dask scheduler.

Dask is imported only when workers are requested.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipeline.store.errors import WrongUsage
from pipeline.store.extras import require_installed
from pipeline.store.files import require_folder, write_json
from pipeline.store.objects.urls import shown
from pipeline.store.option_fields import documented, option, require_bounds
from pipeline.store.progress import Monitor, OnProgress, Stopwatch
from pipeline.store.wording import counted

Result = TypeVar("Result")


class Executor(Protocol):
    """Runs a task for each job."""

    def __call__(
        self,
        task: Callable[..., Result],
        jobs: Iterable[tuple[int, Any]],
        on_progress: OnProgress,
        stop: Callable[[], None],
    ) -> Generator[Result, None, None]:
        """Yield the result of `task(number, argument, on_progress)` of jobs, as results arrive.

        Parameters
        ----------
        task : callable. A module-level function, so that workers can import it by name. The job of
            a lost worker is run again, possibly while the lost worker is still running.
        jobs : iterable of (int, object). Number and picklable argument of each task; consumed as
            workers become free, so that few are in memory.
        on_progress : callable. Called in this thread with the arguments that a task passed to its
            own `on_progress`.
        stop : callable. Called once when no more results are needed; makes running tasks end soon.
        """


@documented
@dataclass(frozen=True)
class Place:
    """Where a job runs: without `workers` and `scheduler`, in this process.

    Raises
    ------
    WrongUsage
        Both `workers` and `scheduler`, `resources` without a scheduler, or fewer than 1 worker.

    Examples
    --------
    >>> pipeline.extract(
    ...     "data/mine", "features/mine", recipe="resnet152-pool", place=pipeline.Place(workers=4)
    ... )  # doctest: +SKIP
    """

    workers: int | None = option(
        None, least=1, recorded=False, help="Compute in N worker processes on this machine."
    )
    scheduler: str | None = option(
        None,
        metavar="ADDRESS",
        recorded=False,
        help="Compute on the workers of this Dask scheduler, such as tcp://host:8786.",
    )
    resources: Mapping[str, float] | None = option(
        None,
        name="resource",
        recorded=False,
        help="With --scheduler: resources that a task requires of its worker.  [default: GPU=1 "
        "with --device cuda]",
    )
    retries: int = option(
        2,
        least=0,
        recorded=False,
        help="With --scheduler: restarts of a task whose worker or store failed, in addition to "
        "Dask's own `allowed-failures`.",
    )
    summary: Path | None = option(
        None,
        output=True,
        recorded=False,
        help="Write counts, rates and seconds to a JSON file.",
    )

    def __post_init__(self) -> None:
        if self.workers is not None and self.scheduler is not None:
            raise WrongUsage("pass `workers=...` or `scheduler=...`, not both")
        require_bounds(self)
        if self.resources and self.scheduler is None:
            raise WrongUsage("`resources=...` requires a `scheduler=...`")
        if self.elsewhere:  # known before a network is loaded
            instead = ", or omit `workers=...` and `scheduler=...`"
            require_installed("distributed", "workers need", instead)

    @property
    def elsewhere(self) -> bool:
        """Whether the job runs outside this process."""
        return self.workers is not None or self.scheduler is not None

    @property
    def threads(self) -> int | None:
        """Cores per worker: an equal share of this machine for local workers; None: unknown."""
        if self.workers is None:
            return None
        return max(1, len(os.sched_getaffinity(0)) // self.workers)

    def refuse_summary_of_several(self) -> None:
        """Raise if a summary is requested for several feature sets."""
        if self.summary is not None:
            raise WrongUsage("`summary=...` requires a single recipe; extract each one separately")

    def name(self) -> str:
        """Return a description for a summary."""
        if self.workers is not None:
            return counted(self.workers, "local worker")
        return self.scheduler or "one process"

    def write_summary(
        self,
        out: Path,
        metadata: Mapping[str, Any],
        computed: int,
        seconds: float,
        watch: Stopwatch,
    ) -> None:
        """Write the summary of a finished job, if requested, with its wall time in seconds."""
        if self.summary is None:
            return
        require_folder(self.summary.absolute().parent)
        write_json(
            self.summary,
            {
                "out": shown(out),
                **metadata,
                "rows_computed": computed,
                "seconds": round(seconds, 3),
                "rows_per_second": round(computed / max(seconds, 1e-9), 3),
                "seconds_of_work": {k: round(v, 3) for k, v in sorted(watch.seconds.items())},
                "where": self.name(),
            },
        )

    @contextmanager
    def executor(self, monitor: Monitor, gpu: bool = False) -> Iterator[Executor]:
        """Yield an executor for the duration of the context; `gpu` reserves one GPU per task."""
        # Imported here: it takes a second, and most runs do not need it.
        from pipeline.store.workers.connect import local_workers, scheduler_workers

        if self.workers is not None:
            gpus = _gpus() if gpu else None
            with local_workers(self.workers, monitor.log, gpus) as executor:
                yield executor
        else:
            assert self.scheduler is not None
            resources = self.resources or ({"GPU": 1.0} if gpu else {})
            with scheduler_workers(
                self.scheduler, resources, monitor.log, self.retries
            ) as executor:
                yield executor


def _gpus() -> list[str]:
    """Return the names of this machine's visible CUDA devices."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
