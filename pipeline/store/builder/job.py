"""Computing one shard: the task of every feature set, in this process and on workers.

`compute_shard` computes the missing rows of a shard and writes it to the work folder. A worker
reads its inputs from the job file (`make_shard`), resumes from the finished rows in the work
folder, and adds its own. Any number of processes may compute the same shard concurrently.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.store.builder.job_ref import JobRef, appears, submit
from pipeline.store.builder.partial_shard import PartialShard
from pipeline.store.builder.publish import FinishedShard, finished_shard
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import WRITE, OnProgress, Stopwatch
from pipeline.store.shards.format import (
    OK,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardError,
)
from pipeline.store.shards.plan import ShardPlan, Span
from pipeline.store.shards.reader import ShardFile

_SECONDS_BETWEEN_REPORTS = 1.0


@dataclass(frozen=True)
class ShardJob:
    """A pending shard with everything that a worker needs to compute it."""

    work: Path
    header: FeatureHeader
    plan: ShardPlan
    compress: bool
    settings: dict[str, Any]  # JSON values that all tasks need
    shard: int
    ids: list[str]
    needed: list[Span]  # rows of the set to compute, whether or not pieces have them already
    older: list[Path]  # files with the other rows
    replaced_sha256: str | None  # of the file in the work folder that the shard replaces
    sources: Any  # sources of the rows, as JSON values

    def require_same(self, header: FeatureHeader) -> None:
        """Raise if the worker's recipe, weights or versions differ from the job's."""
        host = socket.gethostname()
        if unlike := self.header.difference(header.metadata()):
            raise OtherShard(
                f"worker {host} {unlike}; install the same weights, files and version of this "
                "package on all workers"
            )
        if header.created_by != self.header.created_by:
            raise OtherShard(
                f"worker {host} runs {header.created_by}, the command {self.header.created_by}; "
                "the shards would record wrong versions: install the same versions on all machines"
            )


@dataclass(frozen=True)
class ShardResult:
    """Result of the task of one shard."""

    shard: int
    finished: FinishedShard  # the verified shard in the work folder
    computed: int  # number of computed rows; the others existed
    seconds: dict[str, float] = field(hash=False)  # by stage
    worker: str | None = None  # host name; None: this process

    def collect(self, path: Path, header: FeatureHeader, ids: Sequence[str]) -> FinishedShard:
        """Return the shard at `path`, which may appear late, if it is the reported file."""
        if self.worker is None:
            return self.finished
        # A network file system may show the new file late, or an older one of the same name.
        if not appears(path):
            raise ShardError(
                f"worker {self.worker} wrote {path}, which does not exist on "
                f"{socket.gethostname()}; the output must be in a folder that all machines share "
                "under the same path: mount it there, or choose another `out=...`"
            )
        entry = self.finished.entry
        if sha256_of_file(path) != entry.sha256:
            raise ShardError(
                f"{path} is not the file that worker {self.worker} wrote: another program has "
                "overwritten it, or the machines have different folders at that path; end the "
                "other program or mount the shared folder, then rerun the command to resume"
            )
        file = ShardFile(path)
        file.require(header, ids)
        return FinishedShard(path, entry, str(file.attributes.get("created_by", "unknown")))


@dataclass(frozen=True)
class SubmittedJob:
    """A job file that workers can read."""

    refs: dict[int, JobRef]  # argument of the task of each shard
    cancel: Callable[[], None]  # makes workers save their rows and stop


def submit_shards(
    work: Path,
    header: FeatureHeader,
    plan: ShardPlan,
    compress: bool,
    settings: dict[str, Any],
    partial: Mapping[int, PartialShard],
    sources_of: Callable[[Span], Any],
) -> SubmittedJob:
    """Write a job file for the pending shards into their work folder."""

    def values_of(shard: PartialShard) -> dict[str, Any]:
        replaced = shard.path if shard.path in shard.older else None
        return {
            "ids": shard.ids,
            "needed": [[span.start, span.stop] for span in shard.needed],
            "older": [str(path) for path in shard.older],
            "replaced_sha256": None if replaced is None else sha256_of_file(replaced),
            "sources": sources_of(shard.span),
        }

    common = {
        "header": asdict(header),
        "plan": asdict(plan),
        "compress": compress,
        "settings": settings,
    }
    job, refs = submit(work, common, map(values_of, partial.values()))
    return SubmittedJob(dict(zip(partial, refs, strict=True)), job.cancel)


# Yields the rows of spans in order, in blocks, each with its first row number; spans and numbers
# are those of the feature set.
Compute = Callable[[Sequence[Span], Stopwatch], Iterator[tuple[int, RowBlock]]]

# The same on a worker, which knows the shard's part of the job file only: spans and numbers count
# the rows of the shard from 0.
JobCompute = Callable[[ShardJob, Sequence[Span], Stopwatch], Iterator[tuple[int, RowBlock]]]


def read_job(ref: JobRef, shard: int) -> ShardJob:
    """Read the inputs of the task of a shard."""
    # Without the task's own line, the key is the same for all tasks: a process parses the common
    # line once.
    common, values = _common(replace(ref, own=None)), ref.read_own()
    header = common["header"]
    return ShardJob(
        work=ref.path.parent,
        header=FeatureHeader(
            **{**header, **{name: tuple(header[name]) for name in ("row_shape", "trained_on")}}
        ),
        plan=_plan(common["plan"]),
        compress=common["compress"],
        settings=common["settings"],
        shard=shard,
        ids=values["ids"],
        needed=[Span(*span) for span in values["needed"]],
        older=[Path(path) for path in values["older"]],
        replaced_sha256=values["replaced_sha256"],
        sources=values["sources"],
    )


@lru_cache(maxsize=1)
def _common(job: JobRef) -> dict[str, Any]:
    return job.read()


def make_shard(
    ref: JobRef, shard: int, compute: JobCompute, on_progress: OnProgress
) -> ShardResult:
    """Compute one shard of a submitted job on a worker; raise once the job is cancelled."""
    job, host = read_job(ref, shard), socket.gethostname()
    partial = PartialShard(job.work, job.header, job.plan, shard, job.ids, job.older)
    if finished := _finished_before(partial, job.header, job.replaced_sha256):
        return ShardResult(shard, finished, 0, {}, host)
    # Corrupt pieces are ignored, not deleted: only the holder of the output's lock deletes files.
    partial.find_pieces()
    for span in job.needed:
        partial.mark_missing(np.arange(span.start, span.stop))
    reported = 0.0

    def compute_rows(spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        first = partial.span.start
        within = [Span(span.start - first, span.stop - first) for span in spans]
        for row, block in compute(job, within, watch):
            yield first + row, block
        # Before writing the shard: once the run has ended, its work folder may be gone, and a new
        # one would be left over.
        ref.require_active()

    def report(*progress: int) -> None:
        nonlocal reported
        if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            on_progress(*progress)
            ref.require_active()

    result = compute_shard(shard, partial, job.compress, compute_rows, report)()
    return replace(result, worker=host)


def compute_shard(
    shard: int,
    partial: PartialShard,
    compress: bool,
    compute: Compute,
    on_progress: OnProgress,
) -> Callable[[], ShardResult]:
    """Have the missing rows of a shard computed; return the function that writes the shard.

    `on_progress` is called after each block with the shard number, the number of existing rows, and
    the number of failures among the rows computed here.
    """
    # The function may be called on another thread, while this one computes the next shard.
    watch = Stopwatch()
    computed = failed = 0
    with _keeping_rows(partial):
        # If all rows are copied, do not load the network.
        for row, block in compute(partial.missing, watch) if partial.missing else ():
            with watch.timing(WRITE):
                partial.append(row, block)
            computed += len(block)
            failed += int((block.status != OK).sum())
            there = len(partial.span) - sum(map(len, partial.missing))
            on_progress(shard, there, failed)

    def write() -> ShardResult:
        with watch.timing(WRITE):
            with _keeping_rows(partial):
                partial.finish(compress)
            first_row = partial.span.start
            finished = finished_shard(partial.path, partial.header, partial.ids, first_row)
        return ShardResult(shard, finished, computed, watch.seconds)

    return write


@contextmanager
def _keeping_rows(partial: PartialShard) -> Iterator[None]:
    """Write finished rows as a piece if the block fails."""
    try:
        yield
    except BaseException:  # an interrupt as well
        # The folder is gone if the run finished without this worker.
        if partial.work.is_dir():
            partial.flush()
        raise


def _finished_before(
    partial: PartialShard, header: FeatureHeader, replaced_sha256: str | None
) -> FinishedShard | None:
    """Return a shard that a lost worker had finished but not reported."""
    try:
        # With that SHA-256 it is the older version, of which some rows are recomputed.
        if not partial.path.is_file() or sha256_of_file(partial.path) == replaced_sha256:
            return None
        return finished_shard(partial.path, header, partial.ids, partial.span.start)
    # Gone between the two reads: the run has ended, or another worker has replaced the file.
    except (DamagedShard, OtherShard, FileNotFoundError):
        return None


def _plan(values: dict[str, Any]) -> ShardPlan:
    older = values["older"]
    return ShardPlan(values["rows"], values["rows_per_shard"], _plan(older) if older else None)
