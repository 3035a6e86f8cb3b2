"""Tasks on Dask workers: a bounded number in flight, unordered results, explained failures."""

import ctypes
import pickle
import queue
import signal
import socket
import time
import uuid
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar

from distributed import Client, Future, KilledWorker, Worker, get_worker
from distributed.comm import CommClosedError

from pipeline.store.errors import (
    ClusterError,
    FileReadError,
    MissingPackage,
    PipelineError,
    is_out_of_memory,
)
from pipeline.store.objects.retry import RemoteError
from pipeline.store.progress import OnProgress

Result = TypeVar("Result")

_MEMORY_TOPIC = "worker-restart-memory"
_SECONDS_BETWEEN_CHECKS = 2.0
_SECONDS_BETWEEN_WARNINGS = 60.0
_SECONDS_OF_ABSENCE = 15.0
# A worker paused this long will not recover: Dask cannot spill what it holds.
_PAUSED_SECONDS = 30.0
# Time for running tasks to save their finished rows once no more results are needed.
_LAST_SECONDS = 10.0
# Constants of glibc's malloc.h, and the value its dynamic thresholds reach on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_BYTES = 1 << 25

_RESUMES = "finished work is kept: rerun the command to resume"


@dataclass(frozen=True)
class _Flying:
    """A submitted task, to submit it again."""

    number: int
    packed: bytes
    retries: int


class Workers:
    """The workers of a scheduler, as an `Executor` (see `pipeline.store.workers.place`)."""

    def __init__(
        self,
        client: Client,
        address: str,
        resources: Mapping[str, float],
        log: Callable[[str], None],
        retries: int = 0,
    ) -> None:
        """Store a connected client; `resources` are the requirements of each task."""
        self._client, self._resources, self._log = client, dict(resources), log
        self._retries = retries
        self._address = address
        self._limits: list[int] = []
        self._slots = 1
        self._memory_events: list[dict[str, Any]] = []
        self._checked = self._warned = 0.0
        self._paused_since: float | None = None

    def __call__(
        self,
        task: Callable[..., Result],
        jobs: Iterable[tuple[int, Any]],
        on_progress: OnProgress,
        stop: Callable[[], None],
    ) -> Generator[Result, None, None]:
        """Yield the result of `task(*job, on_progress)` for each job, as `Executor`."""
        arrivals: queue.SimpleQueue[Future | tuple[float, Any]] = queue.SimpleQueue()
        topic = f"pipeline-{uuid.uuid4().hex}"
        flying: dict[Future, _Flying] = {}
        waiting = iter(jobs)
        try:
            self._client.subscribe_topic(topic, arrivals.put)
            self._client.subscribe_topic(_MEMORY_TOPIC, self._note_memory)
            while True:
                self._check()
                # A few more than run at once, so that no worker waits for its next task.
                most = self._slots + self._slots // 4 + 1
                for number, argument in islice(waiting, max(0, most - len(flying))):
                    # A tenth of the bytes of ids and paths; the scheduler keeps what it sends.
                    packed = zlib.compress(pickle.dumps(argument), 1)
                    future = self._submit(task, number, packed, topic)
                    flying[future] = _Flying(number, packed, self._retries)
                    future.add_done_callback(arrivals.put)
                if not flying:
                    return
                try:
                    arrived = arrivals.get(timeout=_SECONDS_BETWEEN_CHECKS)
                except queue.Empty:
                    continue
                if isinstance(arrived, tuple):
                    on_progress(*arrived[1])
                elif (one := flying.pop(arrived, None)) is not None:
                    if one.retries and self._was_lost(arrived, one.number):
                        future = self._submit(task, one.number, one.packed, topic)
                        flying[future] = replace(one, retries=one.retries - 1)
                        future.add_done_callback(arrivals.put)
                        continue
                    yield self._result(arrived, one.number)
        finally:
            stop()
            self._land(flying)
            for name in (topic, _MEMORY_TOPIC):
                with suppress(ValueError, OSError, CommClosedError):
                    self._client.unsubscribe_topic(name)

    def _submit(self, task: Callable[..., Any], number: int, packed: bytes, topic: str) -> Future:
        return self._client.submit(
            run_on_worker,
            task,
            number,
            packed,
            topic,
            key=f"{task.__name__}-{number}-{uuid.uuid4().hex[:8]}",
            pure=False,
            resources=self._resources or None,
        )

    def _was_lost(self, future: Future, number: int) -> bool:
        """Return whether a task failed for a reason of its machine, and log it."""
        error = future.exception() if future.status == "error" else None
        if isinstance(error, KilledWorker) and not self._memory_events:
            self._log(f"task {number} lost its worker {error.last_worker.address}; started again")
            return True
        if isinstance(error, RemoteError | FileReadError):
            self._log(f"{error}; task {number} is started again")
            return True
        return False

    def _result(self, future: Future, number: int) -> Any:
        """Return a task's result, or raise an error that explains its failure."""
        if self._client.status != "running":
            raise _scheduler_gone(self._address)
        try:
            return future.result()
        except KilledWorker as error:
            last = error.last_worker.address
            if self._memory_events:
                event = self._memory_events[-1]
                raise _out_of_memory(
                    [str(event.get("worker", last))],
                    min(self._limits, default=None),
                    event.get("rss"),
                    "Dask killed it near its limit",
                ) from error
            limit = f" (limit {min(self._limits) / 1e9:.2f} GB)" if self._limits else ""
            raise ClusterError(
                f"task {number} was started {error.allowed_failures + 1} times and its worker "
                f"died each time, last {last}. Usually the system killed it for lack of memory"
                f"{limit}, or the batch system ended its job; `dmesg` or the job's log shows "
                "which. Use more memory or time per worker, or a smaller `batch_size=...`; "
                f"{_RESUMES}"
            ) from error
        except (CancelledError, CommClosedError, TimeoutError) as error:
            raise _scheduler_gone(self._address) from error
        except MissingPackage:
            raise
        except ImportError as error:
            raise ClusterError(
                f"a worker cannot import what the task needs ({error}); install the same version "
                "of this package in the environment of the workers"
            ) from error

    def _check(self) -> None:
        """Periodically check that the scheduler responds and has working workers."""
        now = time.monotonic()
        if now - self._checked < _SECONDS_BETWEEN_CHECKS:
            return
        self._checked = now
        if self._client.status != "running":
            raise _scheduler_gone(self._address)
        try:
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, CommClosedError, TimeoutError) as error:
            raise _scheduler_gone(self._address) from error
        able = {name: w for name, w in workers.items() if offers(w, self._resources)}
        self._limits = [
            worker["memory_limit"] for worker in able.values() if worker.get("memory_limit")
        ]
        self._slots = max(1, sum(_slots(worker, self._resources) for worker in able.values()))
        paused = [name for name, worker in able.items() if worker.get("status") == "paused"]
        if able and len(paused) == len(able):
            self._paused_since = self._paused_since or now
            if now - self._paused_since >= _PAUSED_SECONDS:
                used = max(able[name]["metrics"]["memory"] for name in paused)
                raise _out_of_memory(
                    paused, min(self._limits, default=None), used, "Dask has paused all workers"
                )
        else:
            self._paused_since = None
        if able:
            # Replacing workers leaves a gap of some seconds.
            self._warned = now - _SECONDS_BETWEEN_WARNINGS + _SECONDS_OF_ABSENCE
        elif now - self._warned >= _SECONDS_BETWEEN_WARNINGS:
            self._warned = now
            self._log(
                f"{self._address} has no suitable worker at the moment; waiting for one (Ctrl-C "
                "keeps finished work)"
            )

    def _note_memory(self, event: tuple[float, Any]) -> None:
        if isinstance(event[1], dict):
            self._memory_events.append(event[1])

    def _land(self, flying: Mapping[Future, object]) -> None:
        """Wait for running tasks, which have received the stop request, then cancel the others."""
        deadline = time.monotonic() + _LAST_SECONDS
        try:
            while (
                self._client.status == "running"
                and time.monotonic() < deadline
                and any(not future.done() for future in flying)
            ):
                time.sleep(0.05)
        finally:
            with suppress(OSError, CommClosedError, CancelledError, TimeoutError):
                if flying and self._client.status == "running":
                    self._client.cancel(list(flying), force=True)


def dask_setup(worker: Worker) -> None:
    """Ignore Ctrl-C in local workers, which preload this module: the command handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_on_worker(task: Callable[..., Result], number: int, packed: bytes, topic: str) -> Result:
    """Run a task on a worker; errors name the worker's host."""
    _keep_freed_memory()
    try:
        argument = pickle.loads(zlib.decompress(packed))
        return task(number, argument, partial(_report, topic))
    except PipelineError as error:
        host = socket.gethostname()
        text = str(error)
        raise type(error)(text if host in text else f"on worker {host}: {text}") from error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        worker = get_worker()
        limit = worker.memory_manager.memory_limit
        why = str(error).splitlines()[0] if str(error) else "an allocation failed"
        raise _out_of_memory(
            [f"{worker.address} on {socket.gethostname()}"], limit, None, why
        ) from error


@cache
def _keep_freed_memory() -> None:
    """Set glibc's thresholds to their values without Dask; do nothing on other libcs."""
    # Dask starts workers with MALLOC_TRIM_THRESHOLD_=65536, so that freed arrays are returned to
    # the system at once. A network frees and allocates the same activations repeatedly, and each
    # page would be mapped and zeroed anew.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MMAP_BYTES)


def offers(worker: Mapping[str, Any], resources: Mapping[str, float]) -> bool:
    """Return whether a worker, as described by the scheduler, meets the needs of a task."""
    offered = worker.get("resources") or {}
    return all(offered.get(name, 0) >= amount for name, amount in resources.items())


def _slots(worker: Mapping[str, Any], resources: Mapping[str, float]) -> int:
    """Return the number of concurrent tasks of a worker."""
    offered = worker.get("resources") or {}
    most = [int(offered[name] // amount) for name, amount in resources.items() if amount]
    return min([int(worker.get("nthreads", 1)), *most])


def _report(topic: str, *progress: Any) -> None:
    get_worker().log_event(topic, progress)


def _scheduler_gone(address: str) -> ClusterError:
    """Return the error of a scheduler that disappeared during the work."""
    return ClusterError(
        f"lost the connection to the scheduler at {address}: it was stopped, or the network "
        f"failed; start the scheduler and its workers again; {_RESUMES}"
    )


def _out_of_memory(
    workers: Sequence[str], limit: int | None, used: int | None, why: str
) -> ClusterError:
    """Return the error of workers that exceeded their memory, in bytes where known."""
    memory = f"its limit is {limit / 1e9:.2f} GB" if limit else "no limit is known to Dask"
    if used:
        memory += f", it used {used / 1e9:.2f} GB"
    return ClusterError(
        f"worker {', '.join(workers[:3]) or 'unknown'} ran out of memory ({why}; {memory}); allow "
        "workers more memory (fewer of them per machine, a larger `--memory-limit` of `dask "
        "worker`, more `--mem` of the batch system), or use less: a smaller `batch_size=...`, "
        f"fewer `threads=...` and `readers=...`; {_RESUMES}"
    )
