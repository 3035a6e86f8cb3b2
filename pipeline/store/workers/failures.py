"""Errors of a cluster, with their remedies."""

from collections.abc import Sequence

from pipeline.store.errors import PipelineError

_GOES_ON = "finished work is kept: rerun the command to resume"


class ClusterError(PipelineError):
    """Workers are not available or fail."""


class NoSuchWorker(ClusterError):
    """No worker meets the needs of a task."""


class SchedulerGone(ClusterError):
    """The scheduler no longer responds."""


class WorkerMemory(ClusterError):
    """A worker ran out of memory."""


class WorkersDied(ClusterError):
    """The worker of a task died in several attempts."""


def unreachable(address: str, why: object) -> ClusterError:
    """Return the error of a scheduler that does not respond to the first connection."""
    return ClusterError(
        f"no Dask scheduler responds at {address} ({why}); start one with `dask scheduler`, pass "
        "the address that it prints, such as tcp://host:8786, and check the firewall"
    )


def scheduler_gone(address: str) -> SchedulerGone:
    """Return the error of a scheduler that disappeared during the work."""
    return SchedulerGone(
        f"lost the connection to the scheduler at {address}: it was stopped, or the network "
        f"failed; start the scheduler and its workers again; {_GOES_ON}"
    )


def out_of_memory(
    workers: Sequence[str], limit: int | None, held: int | None, why: str
) -> WorkerMemory:
    """Return the error of a worker that exceeded its memory.

    Parameters
    ----------
    workers : sequence of str. Addresses.
    limit : int or None. Bytes per worker, if known.
    held : int or None. Bytes used at the end, if known.
    why : str. What the operating system or Dask did.
    """
    memory = f"its limit is {limit / 1e9:.2f} GB" if limit else "no limit is known to Dask"
    if held:
        memory += f", it used {held / 1e9:.2f} GB"
    return WorkerMemory(
        f"worker {', '.join(workers[:3]) or 'unknown'} ran out of memory ({why}; {memory}); allow "
        "workers more memory (fewer of them per machine, a larger `--memory-limit` of `dask "
        "worker`, more `--mem` of the batch system), or use less: a smaller `batch_size=...`, "
        f"fewer `threads=...` and `readers=...`; {_GOES_ON}"
    )


def workers_died(task: str, times: int, last: str, limits: Sequence[int]) -> WorkersDied:
    """Return the error of a task whose worker died several times."""
    limit = f" (limit {min(limits) / 1e9:.2f} GB)" if limits else ""
    return WorkersDied(
        f"task {task} was started {times} times and its worker died each time, last {last}. "
        f"Usually the system killed it for lack of memory{limit}, or the batch system ended its "
        "job; `dmesg` or the job's log shows which. Use more memory or time per worker, or a "
        f"smaller `batch_size=...`; {_GOES_ON}"
    )
