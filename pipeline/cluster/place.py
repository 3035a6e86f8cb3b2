"""Where the work of a job is done: in this process, in local workers, or on a Dask scheduler's.

Nothing of Dask is imported before workers are asked for.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import PipelineError, WrongUsage
from pipeline.executor import Executor
from pipeline.progress import Monitor
from pipeline.wording import counted


class NoDask(PipelineError):
    """Workers are asked for, and Dask is not installed."""


@dataclass(frozen=True)
class Place:
    """Where the work is done.

    Attributes
    ----------
    workers : processes of this machine; None: none.
    scheduler : address of a Dask scheduler; None: none. Without either, this process works.
    resources : what a task needs of its worker on the scheduler; None: a GPU where it needs one.
    summary : JSON file of counts, rates and seconds; None: none.

    Raises
    ------
    WrongUsage
        Both `workers` and `scheduler`, `resources` without a scheduler, or fewer than 1 worker.
    """

    workers: int | None = None
    scheduler: str | None = None
    resources: Mapping[str, float] | None = None
    summary: Path | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.scheduler is not None:
            raise WrongUsage("give `workers=...` or `scheduler=...`, not both")
        if self.workers is not None and self.workers < 1:
            raise WrongUsage(f"workers is {self.workers}; it must be at least 1")
        if self.resources and self.scheduler is None:
            raise WrongUsage("`resources=...` is for the workers of a `scheduler=...`")

    @property
    def elsewhere(self) -> bool:
        """Whether the work is done outside this process."""
        return self.workers is not None or self.scheduler is not None

    @property
    def threads(self) -> int | None:
        """Cores of each worker: a local worker's share of this machine's; None: not known."""
        if self.workers is None:
            return None
        return max(1, len(os.sched_getaffinity(0)) // self.workers)

    def refuse_summary_of_several(self) -> None:
        """Raise where a summary is asked for and several feature sets are made.

        Raises
        ------
        WrongUsage
        """
        if self.summary is not None:
            raise WrongUsage("`summary=...` is of one recipe; extract each by itself for a summary")

    def name(self) -> str:
        """Return the place in words, for a summary."""
        if self.workers is not None:
            return counted(self.workers, "local worker")
        return self.scheduler or "one process"

    @contextmanager
    def executor(self, monitor: Monitor, gpu: bool = False) -> Iterator[Executor]:
        """Yield the workers for as long as the context is open.

        Parameters
        ----------
        monitor : receives log lines.
        gpu : whether each task needs a GPU of its own.

        Raises
        ------
        ClusterError
            They are not available.
        """
        try:
            # Only here: it takes a second, and most runs have no use for it.
            from pipeline.cluster.connect import local_workers, scheduler_workers
        except ImportError as error:
            raise NoDask(
                f"workers need Dask, which cannot be imported ({error}); install it with `pip "
                "install 'dask[distributed]'`, or leave `workers=...` and `scheduler=...` out"
            ) from error
        if self.workers is not None:
            gpus = _gpus() if gpu else None
            with local_workers(self.workers, monitor.log, gpus) as executor:
                yield executor
        else:
            assert self.scheduler is not None
            resources = self.resources or ({"GPU": 1.0} if gpu else {})
            with scheduler_workers(self.scheduler, resources, monitor.log) as executor:
                yield executor


def _gpus() -> list[str]:
    """Return the names of this machine's CUDA devices that may be used."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
