"""Where the work of a job is done: in this process, in local workers, or on a Dask scheduler's.

Nothing of Dask is imported before workers are asked for.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.errors import PipelineError, WrongUsage
from pipeline.progress import Monitor
from pipeline.shards.resume.distributed import Executor


class NoDask(PipelineError):
    """Workers are asked for, and Dask is not installed."""


@dataclass(frozen=True)
class Place:
    """Where the work is done.

    Attributes
    ----------
    workers : processes of this machine; None: none.
    scheduler : address of a Dask scheduler; None: none.
    resources : what a task needs of its worker, on a scheduler.
    gpu : whether a task needs a GPU of its own.
    """

    workers: int | None
    scheduler: str | None
    resources: Mapping[str, float]
    gpu: bool

    @property
    def elsewhere(self) -> bool:
        """Whether the work is done outside this process."""
        return self.workers is not None or self.scheduler is not None

    def share(self, threads: int | None) -> int | None:
        """Return the threads of each worker: as asked, or a local worker's share of the cores."""
        if threads is not None or self.workers is None or self.gpu:
            return threads
        return max(1, len(os.sched_getaffinity(0)) // self.workers)

    def name(self) -> str:
        """Return the place in words, for a summary."""
        if self.workers is not None:
            return f"{self.workers} local worker{'s' * (self.workers > 1)}"
        return self.scheduler or "one process"

    @contextmanager
    def executor(self, monitor: Monitor) -> Iterator[Executor]:
        """Give the workers for as long as the context is open.

        Raises
        ------
        ClusterError
            They cannot be had.
        """
        try:
            # Only here: it takes a second, and most runs have no use for it.
            from pipeline.cluster.connect import local_workers, scheduler_workers
        except ImportError as error:
            raise NoDask(
                f"workers need Dask, which cannot be imported ({error}); install it with `pip "
                "install 'dask[distributed]'`, or leave --workers and --scheduler out"
            ) from error
        if self.workers is not None:
            gpus = _gpus() if self.gpu else None
            with local_workers(self.workers, monitor.log, gpus) as executor:
                yield executor
        else:
            assert self.scheduler is not None
            with scheduler_workers(self.scheduler, self.resources, monitor.log) as executor:
                yield executor


def place_of_work(
    workers: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    gpu: bool = False,
) -> Place:
    """Return where a job's arguments say that the work is done.

    Parameters
    ----------
    workers, scheduler, gpu : see `Place`.
    resources : None: a GPU where the task needs one.

    Raises
    ------
    WrongUsage
        The arguments contradict each other.
    """
    if workers is not None and scheduler is not None:
        raise WrongUsage("give --workers or --scheduler, not both")
    if resources and scheduler is None:
        raise WrongUsage("--resource is for the workers of a --scheduler")
    return Place(workers, scheduler, resources or ({"GPU": 1.0} if gpu else {}), gpu)


def _gpus() -> list[str]:
    """Return the names of this machine's CUDA devices that may be used."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
