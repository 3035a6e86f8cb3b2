"""Two one-thread workers compared with one process with two threads, and Dask's overhead per shard.

    python -m bench.cluster --images FOLDER

Rates count images from the first finished batch to published shards; start-up is printed
separately. The overhead is measured with `--tasks` tasks that do nothing, and with shards of one
row each, including the job, the check and the record of each shard.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.extract import WEIGHTS, rate
from pipeline.images.image_source import image_source
from pipeline.images.recipes import resolve_recipe
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.jobs.make_features import make_features
from pipeline.store.jobs.options import Compute, Storage
from pipeline.store.jobs.origins import Origin, Texts
from pipeline.store.jobs.worker import compute_on_workers
from pipeline.store.progress import QUIET, Progress, Stopwatch, no_progress
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.connect import local_workers
from pipeline.store.workers.place import Place
from pipeline.store.workers.shipping import shared

Marks = list[tuple[float, int]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=Path, required=True, help="folder of JPEG files")
    parser.add_argument("--count", type=int, default=1000, help="images")
    parser.add_argument("--rows-per-shard", type=int, default=100)
    parser.add_argument("--recipe", default="efficientnet-lite0-pool")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=500)
    arguments = parser.parse_args()
    found = sorted(arguments.images.glob("*.jp*g"))
    if not found:
        sys.exit(f"{arguments.images} has no JPEG files")
    paths = [found[i % len(found)] for i in range(arguments.count)]
    for path in set(paths):
        path.read_bytes()
    with tempfile.TemporaryDirectory() as scratch:
        throughput(arguments, paths, Path(scratch))
        overhead(arguments.tasks, Path(scratch))


def throughput(arguments: argparse.Namespace, paths: list[Path], scratch: Path) -> None:
    """Run both ways alternately, compare their bytes, and print medians."""
    recipe = resolve_recipe(arguments.recipe)
    ids = [f"{number}-{path.name}" for number, path in enumerate(paths)]
    batch_size = 8
    rates: dict[str, list[float]] = {"one process": [], "two workers": []}
    folders = []
    for number in range(arguments.rounds):
        for way in rates:
            out = scratch / f"{way}-{number}"
            marks: Marks = []
            mark = marker(marks)
            started = time.perf_counter()
            threads = 2 if way == "one process" else 1
            how = Compute(WEIGHTS, batch_size=batch_size, threads=threads, readers=threads)
            source = image_source(ids, paths, recipe, "bench", how, QUIET)
            place = Place(workers=None if way == "one process" else 2)
            storage = Storage(rows_per_shard=arguments.rows_per_shard)
            make_features(source, out, storage=storage, place=place, monitor=Shown(mark))
            marks.append((time.perf_counter(), len(paths)))
            rates[way].append(rate(marks))
            first = marks[0][0] - started
            print(f"{way}: {rates[way][-1]:.2f} images/s, {first:.1f} s to the first batch")
            folders.append(out)
    for folder in folders[1:]:
        for path in folders[0].iterdir():
            if path.read_bytes() != (folder / path.name).read_bytes():
                sys.exit(f"{folder / path.name} differs from {path}")
    one, two = (float(np.median(found)) for found in rates.values())
    print(f"medians: {one:.2f} and {two:.2f} images/s, ratio {two / one:.2f}; equal bytes")


class Shown:
    """A monitor that passes progress on and discards log lines."""

    def __init__(self, mark: Progress) -> None:
        self._mark = mark

    def log(self, line: str) -> None:
        """Ignore a line."""

    def progress(self, what: str, unit: str) -> AbstractContextManager[Progress]:
        """Return the progress function."""
        return nullcontext(self._mark)


def marker(marks: Marks) -> Callable[[int, int, int], None]:
    """Return a progress function that records the time and the number of rows of each call."""

    def mark(done: int, total: int, failed: int) -> None:
        if done and (not marks or done > marks[-1][1]):
            marks.append((time.perf_counter(), done))

    return mark


def overhead(tasks: int, scratch: Path) -> None:
    """Print the seconds per task that does nothing, and per shard of one row."""
    header = FeatureHeader(
        {"name": "none"}, "none", "0" * 64, "row, dim", "bench", (4,), "float32", "bench"
    )
    ids = [str(number) for number in range(tasks)]
    with local_workers(2, print) as executor:
        list(executor(nothing, [(number, None) for number in range(10)], no_progress, finish))
        started = time.perf_counter()
        list(executor(nothing, [(number, None) for number in range(tasks)], no_progress, finish))
        each = (time.perf_counter() - started) / tasks
        print(f"per task that does nothing: {1000 * each:.1f} ms")
        for name, way in (("two workers", executor), ("this process", serial)):
            with ShardBuild(scratch / f"tiny {name}", header, ids, 1) as build:
                started = time.perf_counter()
                compute_on_workers(build, Zeros(ids, header).part_of, way)
                each = (time.perf_counter() - started) / tasks
            print(f"per shard of one row, {name}: {1000 * each:.1f} ms")


def nothing(number: int, argument: None, on_progress: Callable[..., None]) -> int:
    """Do nothing."""
    return number


@dataclass(frozen=True)
class Zeros:
    """A source of zeros."""

    ids: Sequence[str]
    header: FeatureHeader
    unit: str = "row"
    gpu: bool = False

    @property
    def origin(self) -> Origin:
        """The ids, as texts."""
        return Texts(self.ids)

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Yield rows of zeros."""
        for span in spans:
            rows = np.zeros((len(span), 4), np.float32)
            status = np.zeros(len(span), np.uint8)
            yield span.start, RowBlock(rows, status, ("",) * len(span))

    def part(self, rows: RowNumbers, threads: int | None, ship: Any) -> Callable[[], "Zeros"]:
        """Return the source of some rows."""
        return partial(Zeros, [self.ids[row] for row in rows.tolist()], self.header)

    def part_of(self, span: Span) -> Callable[[], "Zeros"]:
        """Return the source of a span."""
        return self.part(np.arange(span.start, span.stop), None, shared)


def serial(
    task: Callable[..., Any], jobs: Any, on_progress: Callable[..., None], stop: Callable[[], None]
) -> Generator[Any, None, None]:
    """Run tasks in this process."""
    for job in jobs:
        yield task(*job, on_progress)
    stop()


def finish() -> None:
    """Do nothing: no task keeps running."""


if __name__ == "__main__":
    main()
