"""Errors of a cluster, with messages that say what to do."""

from collections.abc import Sequence

from pipeline.errors import PipelineError

_GOES_ON = "what is done is kept: give the same command again and it goes on"


class ClusterError(PipelineError):
    """Workers cannot be had, or cannot do the work."""


class NoSuchWorker(ClusterError):
    """No worker offers what a task needs."""


class SchedulerGone(ClusterError):
    """The scheduler does not answer any more."""


class WorkerMemory(ClusterError):
    """A worker ran out of memory."""


class WorkersDied(ClusterError):
    """A task was begun several times and its worker died each time."""


def unreachable(address: str, why: object) -> ClusterError:
    """Return the error of a scheduler that does not answer in the beginning."""
    return ClusterError(
        f"no Dask scheduler answers at {address} ({why}); start one with `dask scheduler`, give "
        "the address that it prints, such as tcp://host:8786, and see that no firewall is between"
    )


def scheduler_gone(address: str) -> SchedulerGone:
    """Return the error of a scheduler that went away while it was needed."""
    return SchedulerGone(
        f"the connection to the scheduler at {address} was lost: it was ended, or the network "
        f"fails; start the scheduler and its workers again; {_GOES_ON}"
    )


def out_of_memory(
    workers: Sequence[str], limit: int | None, held: int | None, why: str
) -> WorkerMemory:
    """Return the error of a worker that needs more memory than it may have.

    Parameters
    ----------
    workers : their addresses. limit : bytes that a worker may hold, where known.
    held : bytes that it held in the end, where known. why : what the system or Dask did.
    """
    memory = f"its limit is {limit / 1e9:.2f} GB" if limit else "it has no limit that Dask knows"
    if held:
        memory += f", it held {held / 1e9:.2f} GB"
    return WorkerMemory(
        f"worker {', '.join(workers[:3]) or 'unknown'} ran out of memory ({why}; {memory}); give "
        "workers more memory (fewer of them on a machine, a larger `--memory-limit` of `dask "
        "worker`, more `--mem` of the batch system), or need less: a smaller `batch_size=...`, "
        f"fewer `threads=...` and `readers=...`; {_GOES_ON}"
    )


def workers_died(task: str, times: int, last: str, limits: Sequence[int]) -> WorkersDied:
    """Return the error of a task that outlived too many workers."""
    limit = f" (they may hold {min(limits) / 1e9:.2f} GB)" if limits else ""
    return WorkersDied(
        f"task {task} was begun {times} times and its worker died each time, last {last}. Mostly "
        f"the system has killed it for want of memory{limit}, or the batch system has ended its "
        "job; `dmesg` or the job's log says which. Give workers more memory or time, or a smaller "
        f"`batch_size=...`; {_GOES_ON}"
    )
