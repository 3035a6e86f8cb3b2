"""Computing shards on workers: what a task is sent, does and returns."""

import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from pipeline.store.builder.feature_build import RUN_FILES, ShardBuild
from pipeline.store.builder.unfinished_shard import FinishedShard, UnfinishedShard
from pipeline.store.hashing import sha256_of_file
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.origins import not_seen
from pipeline.store.progress import WRITE, OnProgress, Progress, Stopwatch, no_progress
from pipeline.store.registry import Guests, adopt, guests_of_calls
from pipeline.store.shards.format import (
    MISSING,
    OK,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardError,
)
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.plan import Span
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.writer import explained
from pipeline.store.workers.place import Executor

# A network file system may show new files to other machines some seconds late.
PATIENCE_SECONDS = 10.0

_SECONDS_BETWEEN_REPORTS = 1.0

# The threads of a worker share one network.
_building = Lock()


@dataclass(frozen=True)
class ShardTask:
    """What a worker needs to compute a shard."""

    run: Path
    """Empty file in the work folder that exists as long as the run: without it, workers stop."""
    shard: UnfinishedShard
    part: Callable[[], FeatureSource]  # the rows of the shard
    missing: Collection[int]  # rows of the shard whose file the command does not see
    guests: Sequence[Guests] = ()  # that the program of the command has registered


@dataclass(frozen=True)
class ShardResult:
    """A shard that a worker has written and verified."""

    number: int
    finished: FinishedShard
    seconds: dict[str, float]  # by stage
    worker: str  # host name


def compute_on_workers(
    build: ShardBuild,
    part_of: Callable[[Span], Callable[[], FeatureSource]],
    executor: Executor,
    missing: npt.NDArray[np.bool_] | None = None,  # (rows,): the command lacks the row's file
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Compute the pending rows of an entered build on workers, and publish the set."""
    watch = watch or Stopwatch()
    absent = np.zeros(len(build.ids), bool) if missing is None else missing
    run = build.work / RUN_FILES.replace("*", uuid4().hex[:12])
    shards = build.unfinished()
    before = {shard.number: int(np.count_nonzero(shard.state)) for shard in shards}
    failed, total, guests = 0, len(build.ids), guests_of_calls()
    # A lost worker's shard is computed again, so a report replaces the shard's previous one.
    reported: dict[int, tuple[int, int]] = {}

    def tasks() -> Iterator[tuple[int, ShardTask]]:
        for shard in shards:
            span = build.plan.span(shard.number)
            rows = {*np.flatnonzero(absent[span.start : span.stop]).tolist()}
            yield shard.number, ShardTask(run, shard, part_of(span), rows, guests)

    def on_progress(shard: int, rows: int, failures: int) -> None:
        if shard in before:
            reported[shard] = rows, failures
            show()

    def show() -> None:
        under_way = sum(max(0, rows - before[shard]) for shard, (rows, _) in reported.items())
        failing = sum(failures for _, failures in reported.values())
        progress(build.rows_done + under_way, total, failed + failing)

    try:
        with explained(run):
            run.touch()
        show()
        stop = partial(run.unlink, missing_ok=True)
        with closing(executor(compute_shard, tasks(), on_progress, stop)) as results:
            for result in results:
                with watch.timing(WRITE):
                    build.accept(result.number, _received(result, build))
                watch.add_all(result.seconds)
                failed += result.finished.entry.failed_rows
                reported.pop(result.number, None)
                del before[result.number]
                show()
    finally:
        run.unlink(missing_ok=True)
        build.find_rows()  # also of workers whose shard is not finished
    with watch.timing(WRITE):
        return build.publish()


def compute_shard(number: int, task: ShardTask, on_progress: OnProgress) -> ShardResult:
    """Compute one shard on a worker; raise once the run has ended."""
    _require_shared(task.run)
    shard, watch, host = task.shard, Stopwatch(), socket.gethostname()
    if finished := shard.finished_before():
        return ShardResult(number, finished, {}, host)
    shard.find_rows()
    failed, reported = 0, 0.0
    try:
        for first, block in _rows(task, watch):
            with watch.timing(WRITE):
                shard.append(first, block)
            failed += int((block.status != OK).sum())
            if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                on_progress(number, int(np.count_nonzero(shard.state)), failed)
                _require_active(task.run)
        # Once the run has ended, its work folder may be gone, and a new one would be left over.
        _require_active(task.run)
        with watch.timing(WRITE):
            finished = shard.finish()
    except BaseException:  # an interrupt as well
        if shard.work.is_dir():
            shard.flush()
        raise
    return ShardResult(number, finished, watch.seconds, host)


def _rows(task: ShardTask, watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
    """Yield the pending rows of a shard, numbered within it."""
    if not (pending := task.shard.pending):
        return
    with _building:
        adopt(task.guests)
        source = task.part()
    require_same(task.shard.header, source.header)
    yield from seen_rows(source, pending, task.missing, watch)


def seen_rows(
    source: FeatureSource, spans: Sequence[Span], missing: Collection[int], watch: Stopwatch
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the rows of spans; raise for a file that only the command sees, not in `missing`."""
    files = source.origin.files
    for first, block in source.compute(spans, watch):
        for row in (first + np.flatnonzero(block.status == MISSING)).tolist():
            # Missing here but not for the command: the folder is not mounted on this worker.
            if files is not None and row not in missing:
                raise not_seen(files[row], source.origin.plural)
        yield first, block


def require_same(expected: FeatureHeader, header: FeatureHeader) -> None:
    """Raise if the worker's recipe, weights or versions differ from the command's."""
    host = socket.gethostname()
    if unlike := expected.difference(header.metadata()):
        raise OtherShard(
            f"worker {host} {unlike}; install the same weights, files and version of this "
            "package on all workers"
        )
    if header.created_by != expected.created_by:
        raise OtherShard(
            f"worker {host} runs {header.created_by}, the command {expected.created_by}; the "
            "shards would record wrong versions: install the same versions on all machines"
        )


@lru_cache(maxsize=1)
def _require_shared(run: Path) -> None:
    """Raise unless this machine sees the output's folder; later, a missing file means the end."""
    if not _appears(run):
        raise ShardError(
            f"worker {socket.gethostname()} does not see {run}, which this run has written; the "
            "output must be in a folder that all workers share under the same path: mount it "
            "there, or choose another `out=...`"
        )


def _require_active(run: Path) -> None:
    if not run.is_file():
        raise ShardError(
            f"{run} was cancelled: the run that wrote it has ended; finished rows are kept"
        )


def _received(result: ShardResult, build: ShardBuild) -> FinishedShard:
    """Return a worker's shard if it is the reported file; it may appear late."""
    # A network file system may show the new file late, or an older one of the same name.
    path, entry = result.finished.path, result.finished.entry
    if not _appears(path):
        raise ShardError(
            f"worker {result.worker} wrote {path}, which does not exist on "
            f"{socket.gethostname()}; the output must be in a folder that all machines share "
            "under the same path: mount it there, or choose another `out=...`"
        )
    if sha256_of_file(path) != entry.sha256:
        raise ShardError(
            f"{path} is not the file that worker {result.worker} wrote: another program has "
            "overwritten it, or the machines have different folders at that path; end the "
            "other program or mount the shared folder, then rerun the command to resume"
        )
    span = build.plan.span(result.number)
    ShardFile(path).require(build.header, build.ids[span.start : span.stop])
    return result.finished


def _appears(path: Path) -> bool:
    """Wait some seconds for a file of another machine; return whether it exists."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
