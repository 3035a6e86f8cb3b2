"""Where workers come from: processes of this machine, or a scheduler that is there already."""

import atexit
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any
from urllib.request import urlopen

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster
from distributed.deploy.spec import close_clusters
from distributed.system import MEMORY_LIMIT

from pipeline.cluster.executor import Workers, offers
from pipeline.cluster.failures import ClusterError, NoSuchWorker, unreachable
from pipeline.wording import counted

_CONNECT_SECONDS = 10
# Batch systems start jobs when they like; more than this, and the wait is for nothing.
FIRST_WORKER_SECONDS = 60.0

Log = Callable[[str], None]


@contextmanager
def local_workers(
    count: int, log: Log, gpus: Sequence[str] | None = None, memory_limit: int | None = None
) -> Iterator[Workers]:
    """Start worker processes on this machine and end them afterwards.

    Parameters
    ----------
    count : of processes, with one task at a time each.
    log : called with one line about the workers.
    gpus : names of CUDA devices as in CUDA_VISIBLE_DEVICES, one for each worker; None: none.
    memory_limit : bytes that a worker may hold; None: an equal share of the machine's memory.

    Raises
    ------
    ClusterError
        There are fewer GPUs than workers, or a worker ends while it starts.
    """
    if gpus is not None and count > len(gpus):
        raise NoSuchWorker(
            f"{count} workers with a GPU each were asked for, and this machine has {len(gpus)} "
            f"({', '.join(gpus) or 'none'}); give `workers={len(gpus)}` or less"
            if gpus
            else f"{count} workers with a GPU each were asked for, and this machine has none; "
            "give `device=cpu`, or a `scheduler=...` whose workers have GPUs"
        )
    options = {
        "nthreads": 1,
        "host": "127.0.0.1",
        "dashboard": False,
        "memory_limit": memory_limit or MEMORY_LIMIT // count,
        "silence_logs": logging.CRITICAL,
        "preload": ["pipeline.cluster.local_worker"],
    }
    spec = {}
    for number in range(count):
        own = {} if gpus is None else {"env": {"CUDA_VISIBLE_DEVICES": gpus[number]}}
        spec[number] = {"cls": Nanny, "options": {**options, **own}}
    scheduler = {
        "cls": Scheduler,
        "options": {
            "host": "127.0.0.1",
            "dashboard": find_spec("bokeh") is not None,
            "dashboard_address": "127.0.0.1:0",
        },
    }
    # No data of ours lies in a worker: to spill or to pause would free nothing.
    never = (f"distributed.worker.memory.{what}" for what in ("target", "spill", "pause"))
    with (
        dask.config.set(dict.fromkeys(never, False)),
        _started(spec, scheduler) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(count)
        log(_described(client, counted(count, "local worker")))
        yield Workers(client, cluster.scheduler_address, {}, log)


def _started(workers: Mapping[int, Any], scheduler: Mapping[str, Any]) -> SpecCluster:
    """Return a cluster whose workers have started."""
    try:
        return SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.CRITICAL)
    except (RuntimeError, OSError, TimeoutError) as error:
        raise ClusterError(
            f"a worker of this machine ended while it started ({error}): something "
            "killed it, or memory or processes are used up; see which, and give the same command "
            "again, with fewer `workers=...` if need be"
        ) from error
    except KeyboardInterrupt:
        # Dask closes what has not started yet when Python exits, and fails an assertion: here it
        # does so without a traceback. Nobody waits for the workers any more: what became of them
        # is not logged either.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        with suppress(Exception):
            close_clusters()
        atexit.unregister(close_clusters)
        raise


@contextmanager
def scheduler_workers(address: str, resources: Mapping[str, float], log: Log) -> Iterator[Workers]:
    """Connect to a scheduler; its workers stay when the context ends.

    Parameters
    ----------
    address : such as "tcp://host:8786".
    resources : what each task needs of its worker, such as {"GPU": 1}.
    log : called with one line about the workers.

    Raises
    ------
    ClusterError
        No scheduler answers, or it has no worker for a minute.
    NoSuchWorker
        No worker offers the resources; what they offer is listed.
    """
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise unreachable(address, str(error).splitlines()[0] or "no answer") from error
    with client:
        found = _workers_of(client, address, log)
        able = [worker for worker in found.values() if offers(worker, resources)]
        if not able:
            raise NoSuchWorker(
                f"a task needs {_listed(resources)}, and none of the {len(found)} workers of "
                f"{address} offers it: they offer {_offered(found)}; start workers with `dask "
                f"worker {address} --nthreads 1 --resources {_wanted(resources)}`, or say with "
                "`resources=...` what a task needs"
            )
        log(_described(client, f"{len(able)} of {len(found)} workers of {address}"))
        yield Workers(client, address, resources, log)


def _workers_of(client: Client, address: str, log: Log) -> Mapping[str, dict]:
    deadline = time.monotonic() + FIRST_WORKER_SECONDS
    logged = False
    while not (found := client.scheduler_info(n_workers=-1)["workers"]):
        if not logged:
            log(f"{address} has no worker yet; waiting for the first")
            logged = True
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the scheduler at {address} has no worker; start some with `dask worker "
                f"{address} --nthreads 1`, and where they come and go by themselves, ask for at "
                "least one"
            )
        time.sleep(0.5)
    return dict(found)


def _described(client: Client, workers: str) -> str:
    link = client.dashboard_link
    try:
        # A scheduler without bokeh has the address too, and a page that asks for bokeh.
        with urlopen(link, timeout=_CONNECT_SECONDS) as page:
            there = b"Dask needs bokeh" not in page.read(200)
    except (OSError, ValueError):
        there = False
    return f"working on {workers}" + (f"; dashboard: {link}" if there else "")


def _offered(workers: Mapping[str, dict]) -> str:
    kinds = {_listed(worker.get("resources") or {}) for worker in workers.values()}
    return ", ".join(sorted(kinds))


def _listed(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{k}={v:g}" for k, v in sorted(resources.items())) or "nothing"


def _wanted(resources: Mapping[str, float]) -> str:
    return '"' + " ".join(f"{k}={v:g}" for k, v in sorted(resources.items())) + '"'
