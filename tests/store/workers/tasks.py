"""Features without torch for workers: rows of the made set, slowly if asked."""

import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.store.builder import unfinished_shard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.jobs.origins import Files, Origin, Texts
from pipeline.store.jobs.worker import compute_on_workers
from pipeline.store.progress import FORWARD, OnProgress, Progress, Stopwatch, no_progress
from pipeline.store.shards.format import MISSING, FeatureHeader, RowBlock
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.place import Executor
from pipeline.store.workers.shipping import shared
from tests.store.shards.factories import ROWS_PER_SHARD, block_of, header, ids

FAILED, BATCH = (3, 17), 4


@dataclass(frozen=True)
class MadeSource:
    """The made set: an id ends with the number that gives its features."""

    ids: Sequence[str]
    header: FeatureHeader = field(default_factory=header)
    seconds: float = 0.0  # that a batch takes
    flush_seconds: float = 20.0
    largest_file: int = resource.RLIM_INFINITY  # that a worker may write, in bytes
    memory: str = ""  # "hoard": takes more and more; "none": has none
    files: Sequence[Path] = ()  # of the rows; they are missing
    unit: str = "row"
    gpu: bool = False

    @property
    def origin(self) -> Origin:
        if self.files:
            return Files(self.files, "files", lambda path: 1, 1)
        return Texts(self.ids)

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        # An import under the limit would write bytecode that is cut short.
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest_file, resource.RLIM_INFINITY))
        unfinished_shard.FLUSH_SECONDS = self.flush_seconds
        if self.memory == "none":
            raise MemoryError("Unable to allocate 8.00 EiB")
        hoard = []
        while self.memory == "hoard":
            hoard.append(os.urandom(1 << 20) * 16)
            time.sleep(0.01)
        for batch in (batch for span in spans for batch in span.batches(BATCH)):
            with watch.timing(FORWARD):
                time.sleep(self.seconds)
            chosen = self.ids[batch.start : batch.stop]
            block = block_of([int(row_id[:-4].split("-")[1]) for row_id in chosen], FAILED)
            if self.files:
                status = np.full(len(batch), MISSING, np.uint8)
                block = replace(block, status=status, errors=("no file",) * len(batch))
            yield batch.start, block

    def part(self, rows: RowNumbers, threads: int | None, ship: Any) -> Callable[[], "MadeSource"]:
        chosen = [self.ids[row] for row in rows.tolist()]
        files = [self.files[row] for row in rows.tolist()] if self.files else ()
        return partial(replace, replace(self, ids=chosen, files=files))


def build_made(
    out: Path,
    rows: int,
    executor: Executor,
    progress: Progress = no_progress,
    **how: Any,
) -> FeatureIndex:
    """Build the made set on workers; `how` are fields of `MadeSource`."""
    with ShardBuild(out, header(), ids(rows), ROWS_PER_SHARD) as build:
        source = MadeSource(build.ids, **how)
        return compute_on_workers(
            build,
            lambda span: source.part(np.arange(span.start, span.stop), None, shared),
            executor,
            progress=progress,
        )


def serial(
    task: Callable[..., Any],
    jobs: Iterable[tuple[int, Any]],
    on_progress: OnProgress,
    stop: Callable[[], None],
) -> Generator[Any, None, None]:
    """Executor tasks over no workers at all: one after the other, last job first."""
    try:
        for number, argument in reversed([*jobs]):
            yield task(number, pickle.loads(pickle.dumps(argument)), on_progress)
    finally:
        stop()
