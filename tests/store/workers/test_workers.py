"""Real workers: the same bytes, and what is said when workers, schedulers or disks fail."""

import ast
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import dask
import pytest

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.errors import ClusterError
from pipeline.store.progress import OnProgress
from pipeline.store.shards.format import ShardError
from pipeline.store.workers import connect
from pipeline.store.workers.connect import local_workers, scheduler_workers
from pipeline.store.workers.executor import Workers
from tests.project import PROJECT
from tests.store.shards.factories import ROWS_PER_SHARD, build, contents, header, ids
from tests.store.workers.tasks import build_made

ROWS = 203
KILLS = 20

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of a build in one process."""
    folder = tmp_path_factory.mktemp("whole")
    build(folder / "out", ROWS)
    return contents(folder)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Two local workers; none is left behind."""
    with local_workers(2, ignore_log) as found:
        yield found
    assert worker_processes() == []


def ignore_log(line: str) -> None:
    """Take no notice."""


def worker_processes() -> list[int]:
    """Return the worker processes of this one that are alive: the forks of its server."""
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if server is None:
        return []
    return [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]


def test_a_worker_that_ends_while_it_starts_is_an_error_with_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(**options: object) -> object:
        raise RuntimeError("Nanny failed to start worker process")

    monkeypatch.setattr("pipeline.store.workers.connect.SpecCluster", start)
    with (
        pytest.raises(
            ClusterError, match=r"died during start-up .*Nanny failed.*rerun the command"
        ),
        local_workers(2, ignore_log),
    ):
        pass


def test_local_workers_give_the_bytes_of_one_process(
    tmp_path: Path, whole: dict[str, bytes], workers: Workers
) -> None:
    seen: list[tuple[int, int, int]] = []
    build_made(tmp_path / "out", ROWS, workers, lambda *done: seen.append(done))
    assert contents(tmp_path) == whole
    assert (seen[0], seen[-1]) == ((0, ROWS, 0), (ROWS, ROWS, 2))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert max(b[0] - a[0] for a, b in pairwise(seen)) <= ROWS_PER_SHARD


def test_what_a_task_raises_names_the_worker(tmp_path: Path, workers: Workers) -> None:
    host = os.uname().nodename
    with pytest.raises(ClusterError, match=f"{host}.*8.00 EiB.*smaller `batch_size="):
        build_made(tmp_path / "out", ROWS, workers, memory="none")


def test_a_full_disk_stops_the_run_and_the_same_command_goes_on(
    tmp_path: Path, whole: dict[str, bytes], workers: Workers
) -> None:
    """No file may be as large as a shard; journals are smaller."""
    out = tmp_path / "out"
    size = len(whole["out/shard-00000-of-00021.h5"])
    with pytest.raises(ShardError, match=r"worker .*could not be written.*free some space"):
        build_made(out, ROWS, workers, largest_file=size - 1, flush_seconds=0)
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        assert work.rows_done >= ROWS_PER_SHARD, "what was done is kept"
        assert not list(work.work.rglob("*.part"))
    workers._client.run(lift_limits)
    build_made(out, ROWS, workers)
    assert contents(tmp_path) == whole


def test_an_interrupt_keeps_what_workers_have_done(
    tmp_path: Path, whole: dict[str, bytes], workers: Workers
) -> None:
    def interrupt(done: int, total: int, failed: int) -> None:
        if done > 8:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    work = ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        build_made(out, ROWS, workers, interrupt, seconds=0.3)
    assert time.monotonic() - started < 10
    with work:
        assert work.rows_done > 8
    build_made(out, ROWS, workers)
    assert contents(tmp_path) == whole


@contextmanager
def killing(kills: int, spared: Sequence[int]) -> Iterator[list[int]]:
    """Send SIGKILL to workers at random moments for as long as the context is open."""
    killed: list[int] = []
    over = threading.Event()
    moments = random.Random(0)

    def kill() -> None:
        while len(killed) < kills and not over.wait(moments.uniform(0.05, 0.6)):
            if alive := sorted({*worker_processes()} - {*spared}):
                killed.append(moments.choice(alive))
                os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_workers_killed_at_random_moments(tmp_path: Path, whole: dict[str, bytes]) -> None:
    killed = number = 0
    others = worker_processes()
    with local_workers(3, ignore_log) as found:
        while killed < KILLS:
            out = tmp_path / str(number) / "out"
            while not out.exists():
                # One shard may lose its worker four times: the same command goes on.
                with killing(KILLS - killed, others) as victims, suppress(ClusterError):
                    build_made(out, ROWS, found, seconds=0.03, flush_seconds=0.05)
                killed += len(victims)
            assert contents(out.parent) == whole
            number += 1
    assert not list(tmp_path.rglob("*.part"))
    assert worker_processes() == others


def test_a_worker_with_too_little_memory_says_so(tmp_path: Path) -> None:
    limit = 250_000_000
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local_workers(1, ignore_log, memory_limit=limit) as found,
        pytest.raises(ClusterError, match=r"limit is 0\.25 GB.*more memory") as raised,
    ):
        build_made(tmp_path / "out", ROWS, found, memory="hoard")
    assert "KilledWorker" not in str(raised.value)


@contextmanager
def cluster(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler and two workers, started as their users start them."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    file = folder / "scheduler.json"
    dask_command = [sys.executable, "-m", "dask"]
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        running.append(
            subprocess.Popen(
                [*dask_command, *arguments, "--scheduler-file", str(file), "--no-dashboard"],
                env=environment,
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        return running[-1]

    try:
        scheduler = start("scheduler", "--port", "0", "--host", "127.0.0.1")
        for _ in range(2):
            start("worker", "--nthreads", "1", "--no-nanny", "--death-timeout", "20", *options)
        deadline = time.monotonic() + 60
        while not (file.exists() and file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"], scheduler
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait(timeout=30)


def test_a_scheduler_with_workers_until_it_is_killed(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "made" / "out"
    with cluster(tmp_path, "--resources", "GPU=1") as (address, scheduler):
        with (
            pytest.raises(ClusterError, match=r"needs TPU=1.*offer GPU=1.*--resources \"TPU=1\""),
            scheduler_workers(address, {"TPU": 1}, ignore_log),
        ):
            pass

        def kill(done: int, total: int, failed: int) -> None:
            if done > 40:
                scheduler.kill()

        with scheduler_workers(address, {"GPU": 1}, ignore_log) as found:
            build_made(tmp_path / "first" / "out", ROWS, found)
            assert contents(tmp_path / "first") == whole
            with pytest.raises(ClusterError, match="rerun the command"):
                build_made(out, ROWS, found, kill, seconds=0.02)
    with ShardBuild(out, header(), ids(ROWS), ROWS_PER_SHARD) as work:
        assert work.rows_done >= 40
    build(out, ROWS)
    assert contents(out.parent) == whole
    monkeypatch.setattr(connect, "_CONNECT_SECONDS", 0.5)
    with (
        pytest.raises(ClusterError, match="no Dask scheduler responds"),
        scheduler_workers(address, {}, ignore_log),
    ):
        pass


def test_too_many_workers_for_the_gpus(tmp_path: Path) -> None:
    for gpus, text in (([], "this machine has no GPU"), (["0"], "use `workers=1` or less")):
        with (
            pytest.raises(ClusterError, match=text),
            local_workers(2, ignore_log, gpus=gpus),
        ):
            pass


def test_nothing_of_dask_is_imported_before_workers_are_asked_for() -> None:
    place = PROJECT / "pipeline/store/workers/place.py"
    for path in (*PROJECT.glob("pipeline/**/*.py"), *PROJECT.glob("stages/**/*.py")):
        if path.parent == place.parent and path != place:
            continue
        source = path.read_text()
        if not re.search(r"dask|distributed|store\.workers", source):
            continue
        for node in ast.parse(source).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            heavy = [name for name in names if name.startswith(("dask", "distributed"))]
            heavy += [name for name in names if name.startswith("pipeline.store.workers")]
            light = {"pipeline.store.workers.place", "pipeline.store.workers.shipping"}
            assert {*heavy} <= light, path


def test_a_bounded_number_of_tasks_is_in_flight(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, flying, most = workers._submit, 0, 0

    def counted(*arguments: Any) -> Any:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        return submit(*arguments)

    monkeypatch.setattr(workers, "_submit", counted)
    results = set()
    for result in workers(echo, ((number, None) for number in range(30)), ignore, stop):
        flying -= 1
        results.add(result)
    assert results == set(range(30))
    assert most <= 4


def echo(number: int, argument: None, on_progress: OnProgress) -> int:
    return number


def ignore(*progress: object) -> None:
    """Take no notice."""


def lift_limits() -> None:
    """Let this process write files of any size."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def stop() -> None:
    """Nothing runs on."""
