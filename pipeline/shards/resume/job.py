"""Making shards on workers: what a worker must know, how it makes a shard, what it reports.

A worker goes on from the finished rows that lie in the work folder, adds its own, and leaves the
finished shard there. Any number of processes may make the same shard at once.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.hashing import sha256_of_file
from pipeline.progress import WRITE, Stopwatch
from pipeline.shards.format import (
    OK,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardEntry,
)
from pipeline.shards.plan import ShardPlan, Span
from pipeline.shards.reader import ShardFile
from pipeline.shards.resume.job_ref import JobRef, NotShared, OnProgress, appears, submit
from pipeline.shards.resume.partial_shard import PartialShard
from pipeline.shards.resume.publish import FinishedShard, finished_shard

_SECONDS_BETWEEN_REPORTS = 1.0


@dataclass(frozen=True)
class ShardJob:
    """A shard to make, and everything that a worker must know to make it.

    Attributes
    ----------
    work : the work folder. header, plan, compress : of the feature set.
    settings : JSON values, whatever else all tasks must know.
    shard : its number.
    ids : of its rows.
    needed : the spans of rows to compute, numbered as in the feature set, whether or not pieces
        have them already.
    older : the file that has its other rows, with its SHA-256, if there is one.
    sources : as JSON values, what its rows are made from.
    """

    work: Path
    header: FeatureHeader
    plan: ShardPlan
    compress: bool
    settings: dict[str, Any]
    shard: int
    ids: list[str]
    needed: list[Span]
    older: tuple[Path, str] | None
    sources: Any

    def require_same(self, found: FeatureHeader) -> None:
        """Refuse a worker whose features would not be what their shard says of them.

        Parameters
        ----------
        found : the header of the features that this worker can make.

        Raises
        ------
        OtherShard
        """
        host = socket.gethostname()
        if unlike := self.header.difference(found.metadata()):
            raise OtherShard(
                f"worker {host} {unlike}; give all workers the same weights and files, and the "
                "same version of this package"
            )
        if found.created_by != self.header.created_by:
            raise OtherShard(
                f"worker {host} runs {found.created_by}, the command {self.header.created_by}; "
                "shards would say that other software made them: install the same versions on all "
                "machines"
            )


@dataclass(frozen=True)
class ShardResult:
    """What a worker reports of a shard that it has finished.

    Attributes
    ----------
    shard : its number.
    entry : its line of the index; every byte of the file has been checked.
    computed : rows that this worker has computed; the others were there.
    seconds : by stage.
    worker : the host that made it.
    """

    shard: int
    entry: ShardEntry
    computed: int
    seconds: dict[str, float] = field(hash=False)
    worker: str = field(default_factory=socket.gethostname)

    def collect(self, path: Path, header: FeatureHeader, ids: Sequence[str]) -> FinishedShard:
        """Return the shard at `path`, which may appear late, if it is the file that was reported.

        Parameters
        ----------
        path : where it should lie.
        header, ids : of the shard that was asked for.

        Raises
        ------
        NotShared
            The file is not seen here, or is another.
        OtherShard
            It holds other features or rows.
        """
        if not appears(path):
            raise NotShared(
                f"worker {self.worker} says that it made {path}, which {socket.gethostname()} "
                "does not see; the output must lie in a folder that all machines share under the "
                "same path: mount it there, or give another --out"
            )
        if sha256_of_file(path) != self.entry.sha256:
            raise NotShared(
                f"{path} is not the file that worker {self.worker} made: another program has "
                "written it, or the machines see different folders at that path; end the other "
                "program or mount the shared folder, then give the same command again, which "
                "checks the file and goes on"
            )
        file = ShardFile(path)
        file.require(header, ids)
        return FinishedShard(path, self.entry, str(file.attributes.get("created_by", "unknown")))


@dataclass(frozen=True)
class SubmittedJob:
    """A job that workers can read.

    Attributes
    ----------
    refs : what the task of each shard gets.
    cancel : makes workers keep the rows that they have, and stop.
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
    """Write a job into its work folder.

    Parameters
    ----------
    work, header, plan, compress, settings : see `ShardJob`.
    partial : the shards to make, by number.
    sources_of : returns, as JSON values, what the rows of a shard are made from.

    Raises
    ------
    ShardError
        It cannot be written, as on a full disk.
    """

    def own(shard: PartialShard) -> dict[str, Any]:
        older = shard.older
        return {
            "ids": shard.ids,
            "needed": [[span.start, span.stop] for span in shard.needed],
            "older": [str(older), sha256_of_file(older)] if older else None,
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


# What a worker computes: the rows of these spans in order, a block at a time. Both number the rows
# of the shard from 0.
Compute = Callable[[ShardJob, Sequence[Span], Stopwatch], Iterator[tuple[int, RowBlock]]]


def read_job(ref: JobRef, shard: int) -> ShardJob:
    """Read what the task of a shard needs.

    Raises
    ------
    NotShared
        The job's file is not there, or is another one.
    RunEnded
        The job has been cancelled.
    """
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
        older=(Path(own["older"][0]), own["older"][1]) if own["older"] else None,
        sources=own["sources"],
    )


@lru_cache(maxsize=1)
def _common(job: JobRef) -> dict[str, Any]:
    return job.read()


def make_shard(ref: JobRef, shard: int, compute: Compute, on_progress: OnProgress) -> ShardResult:
    """Make one shard of a job, on a worker.

    Any number of processes may do so at once: see `pipeline.shards.resume.partial_shard`.

    Parameters
    ----------
    ref : the job.
    shard : number of the shard.
    compute : gives the rows of some spans.
    on_progress : called with the shard, how many of its rows are there, and how many of those
        computed here failed.

    Raises
    ------
    NotShared
        This machine does not see the job.
    RunEnded
        The job was cancelled; finished rows are kept.
    ShardError
        Values cannot be stored, or the disk is full; finished rows are kept.
    """
    job = read_job(ref, shard)
    older, older_sha256 = job.older or (None, None)
    partial = PartialShard(job.work, job.header, job.plan, shard, job.ids, older)
    first = partial.span.start
    if found := _finished_before(partial, job.header, older_sha256):
        return ShardResult(shard, found, 0, {})
    partial.find_pieces()
    partial.mark_missing(np.concatenate([np.arange(s.start, s.stop) for s in job.needed]))
    watch = Stopwatch()
    computed = failed = 0
    reported = 0.0
    try:
        spans = [Span(span.start - first, span.stop - first) for span in partial.missing]
        for row, block in compute(job, spans, watch):
            with watch.timing(WRITE):
                partial.append(first + row, block)
            computed += len(block)
            failed += int((block.status != OK).sum())
            if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                there = len(partial.span) - sum(map(len, partial.missing))
                on_progress(shard, there, failed)
                ref.require_active()
        ref.require_active()
        with watch.timing(WRITE):
            partial.finish(job.compress)
    except BaseException:
        # Not where the run has finished without this worker and has removed the folder.
        if job.work.is_dir():
            partial.flush()
        raise
    with watch.timing(WRITE):
        finished = finished_shard(partial.path, job.header, partial.ids, first)
    return ShardResult(shard, finished.entry, computed, watch.seconds)


def _finished_before(
    partial: PartialShard, header: FeatureHeader, older_sha256: str | None
) -> ShardEntry | None:
    """Return the entry of a shard whose worker was lost after finishing it, before reporting it."""
    try:
        if not partial.path.is_file() or sha256_of_file(partial.path) == older_sha256:
            return None
        return finished_shard(partial.path, header, partial.ids, partial.span.start).entry
    except (DamagedShard, OtherShard, FileNotFoundError):
        return None


def _plan(values: dict[str, Any]) -> ShardPlan:
    older = values["older"]
    return ShardPlan(values["rows"], values["rows_per_shard"], _plan(older) if older else None)
