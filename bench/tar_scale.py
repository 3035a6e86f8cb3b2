"""The command's own memory and time by the number of tar files: `python -m bench.tar_scale`.

For each number of simulated tar files a process of its own hands as many tasks to a real Dask
scheduler, whose workers answer at once with the record of a shard of 10,000 rows. So what is
measured is the command: its keys, tasks, records and index. Then it runs again on the finished set,
whose records and shards are listed in a folder, and once more without the index, as after a kill,
when each record is read. Prints seconds, CPU seconds and memory of each, and the exponents between
the numbers.
"""

import argparse
import hashlib
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import cast

from pipeline.store.jobs import object_shards
from pipeline.store.jobs.object_shards import make_object_shards
from pipeline.store.jobs.options import Storage
from pipeline.store.jobs.publish_shard import ObjectTask, PublishedShard, ShardRecord
from pipeline.store.jobs.sharded_source import OpenShard, ShardKey
from pipeline.store.objects.locate import open_writable
from pipeline.store.progress import QUIET, OnProgress, Stopwatch
from pipeline.store.shards.format import FeatureHeader, ShardEntry
from pipeline.store.workers.place import Place
from pipeline.store.workers.shipping import Ship

ROWS = 10_000
HEADER = FeatureHeader(
    {"name": "simulated"}, "none", "0" * 64, "row, channel", "made", (2048,), "float16", "bench"
)


@dataclass(frozen=True)
class Simulated:
    """Tar files of which nothing is read."""

    number: int
    header: FeatureHeader = HEADER
    unit: str = "image"
    gpu: bool = False
    rows_per_shard: int | None = None

    def shard_keys(self) -> Sequence[ShardKey]:
        """Return the key of each shard."""
        digests = (hashlib.sha256(b"%d" % n).hexdigest() for n in range(self.number))
        return [ShardKey(digest[:12], digest[12:24]) for digest in digests]

    def open_shard(self, number: int, threads: int | None, ship: Ship) -> OpenShard:
        """Return what nobody calls, with the size of a real task."""
        return cast(OpenShard, partial(nullcontext, f"s3://bucket/tars/{number:08}.tar"))


def answer(number: int, task: ObjectTask, on_progress: OnProgress) -> PublishedShard:
    """Return the record of a shard, as a worker does that has computed it."""
    return PublishedShard(number, record(number, task.file), {"read": 1.0, "forward": 1.0})


def record(number: int, file: str) -> ShardRecord:
    """Return the record of a shard."""
    digest = hashlib.sha256(b"%d" % number).hexdigest()
    return ShardRecord(
        entry=ShardEntry(file, 0, ROWS, 0, digest, digest), created_by="bench", bytes=1
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.tar_scale", description=__doc__)
    parser.add_argument("--numbers", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measured(given.one, given.out, given.scheduler)))
        return
    table: dict[int, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        address = Path(folder, "scheduler.json")
        scheduler = subprocess.Popen(
            ["dask", "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", address],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        worker = subprocess.Popen(
            ["dask", "worker", "--scheduler-file", address, "--no-dashboard", "--nthreads", "8",
             "--local-directory", folder],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while not address.is_file():
                time.sleep(0.1)
            tcp = json.loads(address.read_text())["address"]
            for number in given.numbers:
                table[number] = [
                    one_process(number, Path(folder, f"{number}/out"), tcp) for _ in range(3)
                ]
                show(number, table[number])
        finally:
            for process in (worker, scheduler):
                process.terminate()
                process.wait()
    for (less, few), (more, many) in pairwise(table.items()):
        for what, before, after in zip(("computing", "again", "resuming"), few, many, strict=True):
            powers = (math.log(b / a, more / less) for a, b in zip(before, after, strict=True))
            names = ("seconds", "CPU", "MB")
            text = ", ".join(f"{n} ^ {p:.2f}" for n, p in zip(names, powers, strict=True))
            print(f"{less:,} to {more:,}, {what}: {text}")


def one_process(number: int, out: Path, scheduler: str) -> list[float]:
    """Run once in a process of its own: computing, then on the finished set, then without index."""
    ran = subprocess.run(
        [sys.executable, "-m", "bench.tar_scale", "--one", str(number), "--out", out,
         "--scheduler", scheduler],
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    values: list[float] = json.loads(ran.stdout)
    return values


def measured(number: int, out: Path, scheduler: str) -> list[float]:
    """Return seconds, CPU seconds and MB of memory over those of an empty run."""
    object_shards.publish_shard = answer
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    url, place = f"file://{out}", Place(scheduler=scheduler)
    make_object_shards(Simulated(number), url, Storage(), place, QUIET, Stopwatch())
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    simulate_objects(number, out)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [seconds, cpu, (after.ru_maxrss - before.ru_maxrss) / 1000]


def simulate_objects(number: int, out: Path) -> None:
    """Write the records and the shards that workers would have put, each shard of one byte."""
    work = out.parent / ".work" / out.name
    if any(out.glob("shard-*")):
        (out / "index.json").unlink()  # the next run resumes without it
        return
    remote = open_writable(f"file://{out}")
    work_folder = remote.in_parent(".work", remote.name)
    job = object_shards._Job(
        Simulated(number), f"file://{out}", remote, work_folder, Storage(), QUIET
    )
    for at, (file, key) in enumerate(zip(job.names, job._keys, strict=True)):
        (out / file).write_bytes(b"x")
        text = json.dumps(asdict(record(at, file)))
        (work / f"{file}.{key.rows}-{key.content}.json").write_text(text)


def show(number: int, runs: list[list[float]]) -> None:
    """Print the figures of a number of tar files."""
    for what, (seconds, cpu, memory) in zip(("computing", "again", "resuming"), runs, strict=True):
        print(
            f"{number:>9,} tar files, {what}: {seconds:7.1f} s, {cpu:7.1f} CPU s, {memory:7.1f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
