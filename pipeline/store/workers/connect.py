"""Sources of workers: processes of this machine, or an existing scheduler."""

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

from pipeline.store.errors import ClusterError
from pipeline.store.wording import counted
from pipeline.store.workers.executor import Workers, offers

_CONNECT_SECONDS = 10
# Batch systems start jobs at any time; then the wait ends with an error.
FIRST_WORKER_SECONDS = 60.0

Log = Callable[[str], None]


@contextmanager
def local_workers(
    count: int, log: Log, gpus: Sequence[str] | None = None, memory_limit: int | None = None
) -> Iterator[Workers]:
    """Start worker processes on this machine and stop them afterwards."""
    if gpus is not None and count > len(gpus):
        raise ClusterError(
            f"{count} workers with one GPU each were requested, but this machine has {len(gpus)} "
            f"({', '.join(gpus) or 'none'}); use `workers={len(gpus)}` or less"
            if gpus
            else f"{count} workers with one GPU each were requested, but this machine has no GPU; "
            "use `device=cpu`, or a `scheduler=...` whose workers have GPUs"
        )
    options = {
        "nthreads": 1,
        "host": "127.0.0.1",
        "dashboard": False,
        "memory_limit": memory_limit or MEMORY_LIMIT // count,
        "silence_logs": logging.CRITICAL,
        "preload": ["pipeline.store.workers.executor"],  # its `dask_setup`
    }
    spec = {}
    for number in range(count):
        device = {} if gpus is None else {"env": {"CUDA_VISIBLE_DEVICES": gpus[number]}}
        spec[number] = {"cls": Nanny, "options": {**options, **device}}
    scheduler = {
        "cls": Scheduler,
        "options": {
            "host": "127.0.0.1",
            "dashboard": find_spec("bokeh") is not None,
            "dashboard_address": "127.0.0.1:0",
        },
    }
    # Workers hold no Dask data: spilling or pausing would free nothing.
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
            f"a worker of this machine died during start-up ({error}): it was killed, or memory "
            "or processes are exhausted; find the cause and rerun the command, with fewer "
            "`workers=...` if needed"
        ) from error
    except KeyboardInterrupt:
        # At exit Dask closes workers that never started and fails an assertion. Silence its
        # traceback and further logs.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        with suppress(Exception):
            close_clusters()
        atexit.unregister(close_clusters)
        raise


@contextmanager
def scheduler_workers(
    address: str, resources: Mapping[str, float], log: Log, retries: int = 0
) -> Iterator[Workers]:
    """Connect to a scheduler; its workers keep running when the context ends."""
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        why = str(error).splitlines()[0] or "no response"
        raise ClusterError(
            f"no Dask scheduler responds at {address} ({why}); start one with `dask scheduler`, "
            "pass the address that it prints, such as tcp://host:8786, and check the firewall"
        ) from error
    with client:
        workers = _workers_of(client, address, log)
        able = [worker for worker in workers.values() if offers(worker, resources)]
        if not able:
            raise ClusterError(
                f"a task needs {_listed(resources)}, which none of the {len(workers)} workers of "
                f"{address} offers: they offer {_offered(workers)}; start workers with `dask "
                f"worker {address} --nthreads 1 --resources {_argument(resources)}`, or set the "
                "needs of a task with `resources=...`"
            )
        log(_described(client, f"{len(able)} of {len(workers)} workers of {address}"))
        yield Workers(client, address, resources, log, retries)


def _workers_of(client: Client, address: str, log: Log) -> Mapping[str, dict]:
    deadline = time.monotonic() + FIRST_WORKER_SECONDS
    logged = False
    while not (workers := client.scheduler_info(n_workers=-1)["workers"]):
        if not logged:
            log(f"{address} has no worker yet; waiting for the first")
            logged = True
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the scheduler at {address} has no worker; start some with `dask worker "
                f"{address} --nthreads 1`; with adaptive scaling, request at least one"
            )
        time.sleep(0.5)
    return dict(workers)


def _described(client: Client, workers: str) -> str:
    link = client.dashboard_link
    try:
        # Without bokeh the dashboard address exists, but its page only asks to install bokeh.
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


def _argument(resources: Mapping[str, float]) -> str:
    return '"' + " ".join(f"{k}={v:g}" for k, v in sorted(resources.items())) + '"'
