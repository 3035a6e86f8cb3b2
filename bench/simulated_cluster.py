"""Simulation of a day of a cluster in minutes: sleeping workers, a real scheduler, and kills.

    python -m bench.simulated_cluster --shards 10000 --workers 50

Everything is the code of `pipeline extract --scheduler`: `ShardBuild`, the tasks on Dask's
scheduler, journals, finished shards, the index. Only the network is replaced: a worker sleeps as
long as a network would compute, divided by `--factor`, and draws rows by id. Workers are killed
with SIGKILL at random moments and replaced, and so is the command, which is repeated. In the end,
the folder must equal that of one process, byte for byte, and the number of recomputed rows must be
explained by the kills.

Workers are forked from one process with all imports, so that fifty fit into a small machine and a
new one starts at once. Dask's profiler and system monitor are off, and heartbeats are once per
second: fifty times the default on two cores would be the load of another kind of machine.
"""

import argparse
import asyncio
import json
import logging
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType

import dask
import numpy as np
from distributed import Worker

from pipeline.store.builder import unfinished_shard
from pipeline.store.builder.arrays import build_from_rows
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.jobs.origins import Origin, Texts
from pipeline.store.jobs.worker import compute_on_workers
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.connect import scheduler_workers
from pipeline.store.workers.shipping import shared

ROWS_PER_SHARD, ROWS_AT_ONCE, DIM = 8, 4, 16
ID = "{:09d}.jpg"
HEADER = FeatureHeader(
    {"name": "drawn"}, "none", "0" * 64, "row, dim", "bench", (DIM,), "float32", "bench"
)
# A worker that was killed is back after at most this long.
ABSENCE_SECONDS = 2.0
LIGHT = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}


def main() -> None:
    """Run one of the parts, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--hours", type=float, default=24.0, help="of the work")
    parser.add_argument("--factor", type=float, default=288.0, help="simulated seconds per second")
    parser.add_argument("--kills", type=int, default=200, help="of workers")
    parser.add_argument("--command-kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="folder for the shards; default: a temporary one")
    parser.add_argument("--part", choices=[*PARTS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is None:
        simulate(options)
    else:
        PARTS[options.part](options)


def simulate(options: argparse.Namespace) -> None:
    """Run a tenth of the shards, then all, and print the cost."""
    sizes = [max(options.workers, options.shards // 10), options.shards]
    runs = []
    with tempfile.TemporaryDirectory(dir=options.work) as scratch:
        for shards in sizes:
            folder = Path(scratch, str(shards))
            folder.mkdir()
            runs.append(Run.of(options, shards, folder))
            print(runs[-1].text(), flush=True)
    print(f"exponents from {sizes[0]} to {sizes[1]} shards:")
    for name in ("command", "scheduler", "workers", "alone"):
        ratio = getattr(runs[1], name) / getattr(runs[0], name)
        print(f"  CPU seconds, {name}: {math.log(ratio) / math.log(sizes[1] / sizes[0]):.2f}")


@dataclass(frozen=True)
class Run:
    """Cost of a run: CPU seconds of each part without start-up, and the effect of kills.

    `alone` is one process that computes the same shards without sleeping; `memory` and
    `memory_alone` are the peak bytes of the command and of that process.
    """

    shards: int
    workers_at_work: int
    factor: float
    stub: float
    wall: float
    command: float
    scheduler: float
    workers: float
    alone: float
    memory: int
    memory_alone: int
    kills: int
    command_kills: int
    made_again: int

    @classmethod
    def of(cls, options: argparse.Namespace, shards: int, folder: Path) -> "Run":
        """Run the parts as processes, kill the command at times, and compare the results."""
        share = shards / options.shards
        stub = options.hours * 3600 * options.workers / options.shards / options.factor
        part = [sys.executable, "-m", "bench.simulated_cluster", "--work", str(folder)]
        part += [f"--shards={shards}", f"--workers={options.workers}", f"--seed={options.seed}"]
        part += [f"--factor={options.factor}", f"--hours={options.hours * share}"]
        part += [f"--kills={round(options.kills * share)}", "--part"]
        alone, memory_alone = ended(subprocess.Popen([*part, "alone"]))
        alone -= starts(folder)
        address = folder / "scheduler.json"
        serve = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
        serve += ["--port=0", f"--scheduler-file={address}"]
        scheduler = subprocess.Popen(serve, stderr=subprocess.DEVNULL)
        pool = subprocess.Popen([*part, "workers"], stdout=subprocess.PIPE, text=True)
        try:
            while not address.exists():
                time.sleep(0.1)
            before = cpu_of(scheduler.pid)
            started, spent, memory = time.monotonic(), 0.0, 0
            share_done = partial(done, argparse.Namespace(work=folder, shards=shards))
            moments = random.Random(options.seed)
            at = sorted(moments.random() for _ in range(options.command_kills))
            for moment in [*at, math.inf]:
                running = subprocess.Popen([*part, "command"])
                while not is_over(running.pid) and share_done() < moment:
                    time.sleep(0.1)
                if moment < math.inf:
                    os.kill(running.pid, signal.SIGKILL)
                cpu, held = ended(running, killed=moment < math.inf)
                spent, memory = spent + cpu, max(memory, held)
            spent -= starts(folder)
            wall = time.monotonic() - started
            scheduling = cpu_of(scheduler.pid) - before
            pool.terminate()
            found = json.loads(pool.communicate()[0])
        finally:
            pool.kill()
            scheduler.kill()
        made_again = compared(folder, shards)
        most = ROWS_PER_SHARD * (found["kills"] + len(at) * options.workers)
        if made_again > most:
            sys.exit(f"{made_again} rows were recomputed; the kills explain {most}")
        return cls(
            shards, options.workers, options.factor, stub * shards, wall, spent, scheduling,
            found["cpu"], alone, memory, memory_alone, found["kills"], len(at), made_again,
        )  # fmt: skip

    def text(self) -> str:
        """Return a description of the run in a few lines."""
        rows = self.shards * ROWS_PER_SHARD
        simulated = self.stub * self.factor / 3600 / self.workers_at_work
        each = {
            name: 1000 * getattr(self, name) / self.shards
            for name in ("command", "scheduler", "workers", "alone")
        }
        return (
            f"{self.shards} shards, {self.workers_at_work} workers: {simulated:.1f} h of cluster "
            f"in {self.wall:.0f} s ({self.factor:g} times as fast), workers slept "
            f"{self.stub / self.wall / self.workers_at_work:.0%} of it\n"
            f"  same bytes as one process; {self.kills} workers and {self.command_kills} commands "
            f"killed; {self.made_again} of {rows} recomputed rows ({self.made_again / rows:.2%})\n"
            f"  CPU a shard: command {each['command']:.1f} ms, scheduler {each['scheduler']:.1f} "
            f"ms, worker {each['workers']:.1f} ms besides {1000 * self.stub / self.shards:.0f} ms "
            f"of sleep; one process without Dask {each['alone']:.1f} ms\n"
            f"  the command held {self.memory / 1e6:.0f} MB, one process "
            f"{self.memory_alone / 1e6:.0f} MB"
        )


def ended(process: subprocess.Popen, killed: bool = False) -> tuple[float, int]:
    """Wait for a process; return its CPU seconds and its peak bytes."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not (killed and process.returncode == -signal.SIGKILL):
        sys.exit(f"{process.args!r} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def is_over(pid: int) -> bool:
    """Return whether a process has ended; its usage remains available to `ended`."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a running process, from Linux's `/proc`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def starts(folder: Path) -> float:
    """Return the CPU seconds that the parts since the last call used for imports."""
    file = folder / "starts"
    seconds = sum(map(float, file.read_text().split()))
    file.unlink()
    return seconds


def note_start(options: argparse.Namespace) -> None:
    """Record the CPU seconds so far; see `starts`."""
    with (options.work / "starts").open("a") as file:
        file.write(f"{time.process_time()}\n")


def compared(folder: Path, shards: int) -> int:
    """Compare the shards with those of one process; return the number of recomputed rows."""
    expected = sorted(path.name for path in (folder / "alone").iterdir())
    if sorted(path.name for path in (folder / "workers").iterdir()) != expected:
        sys.exit(f"{folder / 'workers'} has not the files of {folder / 'alone'}")
    for name in expected:
        if (folder / "workers" / name).read_bytes() != (folder / "alone" / name).read_bytes():
            sys.exit(f"{folder / 'workers' / name} has other bytes than that of one process")
    made = Counter((folder / "made").read_text().split())
    if len(made) != shards * ROWS_PER_SHARD:
        sys.exit(f"{len(made)} rows were made, not {shards * ROWS_PER_SHARD}")
    return made.total() - len(made)


def ids_of(options: argparse.Namespace) -> list[str]:
    """Return the ids of all rows."""
    return [ID.format(row) for row in range(options.shards * ROWS_PER_SHARD)]


def alone(options: argparse.Namespace) -> None:
    """Compute the shards in this process."""
    note_start(options)
    ids = ids_of(options)
    out = options.work / "alone"
    build_from_rows(
        out, HEADER, ids, lambda a, b: drawn(ids[a:b]), rows_per_shard=ROWS_PER_SHARD
    )  # fmt: skip


def command(options: argparse.Namespace) -> None:
    """Compute the shards on workers, like a command."""
    note_start(options)
    address = json.loads((options.work / "scheduler.json").read_text())["address"]
    seconds = options.hours * 3600 * options.workers / options.shards / options.factor
    flush_seconds = unfinished_shard.FLUSH_SECONDS / options.factor
    with (
        ShardBuild(options.work / "workers", HEADER, ids_of(options), ROWS_PER_SHARD) as build,
        scheduler_workers(address, {}, lambda line: None) as executor,
    ):
        source = Drawn(build.ids, seconds, flush_seconds, options.work)
        compute_on_workers(build, source.part_of, executor)


@dataclass(frozen=True)
class Drawn:
    """A source that sleeps for each batch, records its rows as computed, and draws them."""

    ids: Sequence[str]
    seconds: float  # of a shard
    flush_seconds: float
    work: Path
    header: FeatureHeader = HEADER
    unit: str = "row"
    gpu: bool = False

    @property
    def origin(self) -> Origin:
        """The ids, as texts."""
        return Texts(self.ids)

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Yield the rows of spans slowly."""
        unfinished_shard.FLUSH_SECONDS = self.flush_seconds
        a_row = self.seconds * random.Random(self.ids[0]).uniform(0.5, 1.5) / len(self.ids)
        for batch in (batch for span in spans for batch in span.batches(ROWS_AT_ONCE)):
            ids = self.ids[batch.start : batch.stop]
            time.sleep(a_row * len(batch))
            with (self.work / "made").open("ab", buffering=0) as made:
                made.write(b"".join(map(made_line, ids)))
            yield batch.start, drawn(ids)

    def part(self, rows: RowNumbers, threads: int | None, ship: object) -> Callable[[], "Drawn"]:
        """Return the source of some rows."""
        return partial(replace, replace(self, ids=[self.ids[row] for row in rows.tolist()]))

    def part_of(self, span: Span) -> Callable[[], "Drawn"]:
        """Return the source of a span."""
        return self.part(np.arange(span.start, span.stop), None, shared)


def made_line(row_id: str) -> bytes:
    """Return the record of a computed row."""
    return f"{row_id}\n".encode()


def drawn(ids: Sequence[str]) -> RowBlock:
    """Return random rows by id."""
    numbers = np.array([int(row_id[:-4]) for row_id in ids])
    features = np.sin(numbers[:, None] + np.arange(DIM)).astype(np.float32)
    return RowBlock(features, np.zeros(len(ids), np.uint8), ("",) * len(ids))


def workers(options: argparse.Namespace) -> None:
    """Keep workers running, killing one at times; report their usage at SIGTERM."""
    logging.disable(logging.WARNING)
    over = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal over
        over = True

    file = options.work / "scheduler.json"
    while not (file.exists() and file.read_text()):
        time.sleep(0.1)
    address = json.loads(file.read_text())["address"]
    alive = [fork_worker(address, options.work) for _ in range(options.workers)]
    signal.signal(signal.SIGTERM, end)
    moments = random.Random(options.seed)
    at = sorted(moments.random() for _ in range(options.kills))
    back: list[float] = []
    kills = 0
    while not over:
        time.sleep(0.05)
        now = time.monotonic()
        if kills < len(at) and done(options) > at[kills] and alive:
            dead = alive.pop(moments.randrange(len(alive)))
            os.kill(dead, signal.SIGKILL)
            os.waitpid(dead, 0)
            kills += 1
            back.append(now + moments.uniform(0, ABSENCE_SECONDS))
        for moment in [moment for moment in back if now > moment]:
            back.remove(moment)
            alive.append(fork_worker(address, options.work))
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    used = os.times()
    print(json.dumps({"kills": kills, "cpu": used.children_user + used.children_system}))


def done(options: argparse.Namespace) -> float:
    """Return the share of computed rows, including recomputed ones."""
    made = options.work / "made"
    size = made.stat().st_size if made.exists() else 0
    return float(size / (len(made_line(ID.format(0))) * ROWS_PER_SHARD * options.shards))


def fork_worker(address: str, work: Path) -> int:
    """Start a worker as a fork of this process; return its process id."""
    if pid := os.fork():
        return pid

    async def run() -> None:
        async with Worker(
            address, nthreads=1, memory_limit=0, local_directory=str(work / "dask"), dashboard=False
        ) as worker:
            await worker.finished()

    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with dask.config.set(LIGHT):
            asyncio.run(run())
    finally:
        os._exit(0)


PARTS = {"workers": workers, "command": command, "alone": alone}

if __name__ == "__main__":
    main()
