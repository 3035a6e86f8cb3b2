"""Computing one shard: the task of every feature set, in this process and on workers.

`fill_shard` computes the missing rows of a shard and writes it to the work folder. A worker reads
its inputs from the job file (`make_shard`), resumes from the finished rows in the work folder, and
adds its own. Any number of processes may compute the same shard concurrently.
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

from pipeline.store.build.job_ref import JobRef, NotShared, appears, submit
from pipeline.store.build.partial_shard import PartialShard
from pipeline.store.build.publish import FinishedShard, finished_shard
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import WRITE, Stopwatch
from pipeline.store.shards.format import (
    OK,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
)
from pipeline.store.shards.plan import ShardPlan, Span
from pipeline.store.shards.reader import ShardFile
from pipeline.store.workers.interface import OnProgress

_SECONDS_BETWEEN_REPORTS = 1.0


@dataclass(frozen=True)
class ShardJob:
    """A pending shard with everything that a worker needs to compute it.

    Attributes
    ----------
    work : Path. The work folder.
    header, plan, compress : see `ShardBuild`.
    settings : dict. JSON values that all tasks need.
    shard : int. Shard number.
    ids : sequence of str. Row ids of the shard.
    needed : list of Span. Rows to compute, numbered as in the feature set, whether or not pieces
        have them already.
    older : list of Path. Files with the other rows.
    replaced_sha256 : str or None. SHA-256 of the file in the work folder that the shard replaces.
    sources : JSON values. Sources of the rows.
    """

    work: Path
    header: FeatureHeader
    plan: ShardPlan
    compress: bool
    settings: dict[str, Any]
    shard: int
    ids: list[str]
    needed: list[Span]
    older: list[Path]
    replaced_sha256: str | None
    sources: Any

    def require_same(self, found: FeatureHeader) -> None:
        """Raise if the worker's recipe, weights or versions differ from the job's.

        Parameters
        ----------
        found : FeatureHeader. Header of the features that this worker computes.

        Raises
        ------
        OtherShard
        """
        host = socket.gethostname()
        if unlike := self.header.difference(found.metadata()):
            raise OtherShard(
                f"worker {host} {unlike}; install the same weights, files and version of this "
                "package on all workers"
            )
        if found.created_by != self.header.created_by:
            raise OtherShard(
                f"worker {host} runs {found.created_by}, the command {self.header.created_by}; "
                "the shards would record wrong versions: install the same versions on all machines"
            )


@dataclass(frozen=True)
class ShardResult:
    """Result of the task of one shard.

    Attributes
    ----------
    shard : int. Shard number.
    finished : FinishedShard. The verified shard in the work folder.
    computed : int. Number of computed rows; the others existed.
    seconds : dict. Seconds by stage.
    worker : str or None. Host name of the worker; None: this process.
    """

    shard: int
    finished: FinishedShard
    computed: int
    seconds: dict[str, float] = field(hash=False)
    worker: str | None = None

    def collect(self, path: Path, header: FeatureHeader, ids: Sequence[str]) -> FinishedShard:
        """Return the shard at `path`, which may appear late, if it is the reported file.

        Parameters
        ----------
        path : Path. Expected location.
        header, ids : FeatureHeader, sequence of str. Requested metadata and row ids.

        Raises
        ------
        NotShared
            The file is missing here, or is another one.
        OtherShard
            It holds other features or rows.
        """
        if self.worker is None:
            return self.finished
        if not appears(path):
            raise NotShared(
                f"worker {self.worker} wrote {path}, which does not exist on "
                f"{socket.gethostname()}; the output must be in a folder that all machines share "
                "under the same path: mount it there, or choose another `out=...`"
            )
        entry = self.finished.entry
        if sha256_of_file(path) != entry.sha256:
            raise NotShared(
                f"{path} is not the file that worker {self.worker} wrote: another program has "
                "overwritten it, or the machines have different folders at that path; end the "
                "other program or mount the shared folder, then rerun the command to resume"
            )
        file = ShardFile(path)
        file.require(header, ids)
        return FinishedShard(path, entry, str(file.attributes.get("created_by", "unknown")))


@dataclass(frozen=True)
class SubmittedJob:
    """A job file that workers can read.

    Attributes
    ----------
    refs : list of JobRef. Argument of the task of each shard.
    cancel : callable. Makes workers save their rows and stop.
    """

    refs: dict[int, JobRef]
    cancel: Callable[[], None]


def submit_shards(
    work: Path,
    header: FeatureHeader,
    plan: ShardPlan,
    compress: bool,
    settings: dict[str, Any],
    partial: Mapping[int, PartialShard],
    sources_of: Callable[[Span], Any],
) -> SubmittedJob:
    """Write a job file into its work folder.

    Parameters
    ----------
    work, header, plan, compress, settings : see `ShardJob`.
    partial : mapping of int to PartialShard. Pending shards by number.
    sources_of : callable. Returns the sources of a shard's rows as JSON values.

    Raises
    ------
    ShardError
        The file cannot be written, for example on a full disk.
    """

    def own(shard: PartialShard) -> dict[str, Any]:
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
    job, refs = submit(work, common, map(own, partial.values()))
    return SubmittedJob(dict(zip(partial, refs, strict=True)), job.cancel)


# Yields the rows of spans in order, in blocks, each with its first row number; spans and numbers
# are those of the feature set.
Compute = Callable[[Sequence[Span], Stopwatch], Iterator[tuple[int, RowBlock]]]

# The same on a worker, which knows the shard's part of the job file only: spans and numbers count
# the rows of the shard from 0.
JobCompute = Callable[[ShardJob, Sequence[Span], Stopwatch], Iterator[tuple[int, RowBlock]]]


def read_job(ref: JobRef, shard: int) -> ShardJob:
    """Read the inputs of the task of a shard.

    Raises
    ------
    NotShared
        The job file is missing, or is another one.
    RunEnded
        The job has been cancelled.
    """
    # Without the task's own line, the key is the same for all tasks: a process parses the common
    # line once.
    common, own = _common(replace(ref, own=None)), ref.read_own()
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
        ids=own["ids"],
        needed=[Span(*span) for span in own["needed"]],
        older=[Path(path) for path in own["older"]],
        replaced_sha256=own["replaced_sha256"],
        sources=own["sources"],
    )


@lru_cache(maxsize=1)
def _common(job: JobRef) -> dict[str, Any]:
    return job.read()


def make_shard(
    ref: JobRef, shard: int, compute: JobCompute, on_progress: OnProgress
) -> ShardResult:
    """Compute one shard of a submitted job on a worker.

    Any number of processes may do so concurrently: see `pipeline.store.build.partial_shard`.

    Parameters
    ----------
    ref : JobRef. The job.
    shard : int. Shard number.
    compute : callable. Yields the rows of spans.
    on_progress : callable. Called once a second; see `fill_shard`.

    Raises
    ------
    NotShared
        The job file is not visible on this machine.
    RunEnded
        The job was cancelled; finished rows are kept.
    ShardError
        See `fill_shard`.
    """
    job, host = read_job(ref, shard), socket.gethostname()
    partial = PartialShard(job.work, job.header, job.plan, shard, job.ids, job.older)
    if found := _finished_before(partial, job.header, job.replaced_sha256):
        return ShardResult(shard, found, 0, {}, host)
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
        ref.require_active()  # before writing the shard: the work folder may have been removed

    def report(*progress: int) -> None:
        nonlocal reported
        if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            on_progress(*progress)
            ref.require_active()

    result = fill_shard(shard, partial, job.compress, compute_rows, report)
    return replace(result, worker=host)


def fill_shard(
    shard: int,
    partial: PartialShard,
    compress: bool,
    compute: Compute,
    on_progress: OnProgress,
) -> ShardResult:
    """Compute the missing rows of a shard, and write the shard into the work folder.

    If this ends early for any reason, finished rows are saved as a piece.

    Parameters
    ----------
    shard : int. Shard number.
    partial : PartialShard. Its existing and missing rows.
    compress : bool. See `write_shard`.
    compute : callable. Yields the rows of spans.
    on_progress : callable. Called after each block with the shard number, the number of existing
        rows, and the number of failures among the rows computed here.

    Raises
    ------
    ShardError
        Values cannot be stored, or the disk is full.
    """
    return compute_shard(shard, partial, compress, compute, on_progress)()


def compute_shard(
    shard: int,
    partial: PartialShard,
    compress: bool,
    compute: Compute,
    on_progress: OnProgress,
) -> Callable[[], ShardResult]:
    """Have the missing rows of a shard computed; return the function that writes the shard.

    That function may be called on another thread. See `fill_shard`, which calls it at once.
    """
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
    except BaseException:
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
    except (DamagedShard, OtherShard, FileNotFoundError):
        return None


def _plan(values: dict[str, Any]) -> ShardPlan:
    older = values["older"]
    return ShardPlan(values["rows"], values["rows_per_shard"], _plan(older) if older else None)
