"""Making shards on workers: what a worker must know, how it makes a shard, what it reports.

A worker goes on from the finished rows that lie in the work folder, adds its own, and leaves the
finished shard there. Any number of processes may make the same shard at once.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.hashing import sha256_of_file
from pipeline.progress import WRITE, Stopwatch
from pipeline.shards.build.job_ref import JobRef, NotShared, OnProgress, appears, submit
from pipeline.shards.build.partial_shard import PartialShard
from pipeline.shards.build.publish import FinishedShard, finished_shard
from pipeline.shards.format import (
    OK,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardEntry,
)
from pipeline.shards.plan import ShardPlan, Span
from pipeline.shards.shard_file import ShardFile

_SECONDS_BETWEEN_REPORTS = 1.0


@dataclass(frozen=True)
class ShardJob:
    """The shards to make, and everything that a worker must know to make them.

    Attributes
    ----------
    work : the work folder. header, plan, ids, compress : of the feature set.
    needed : by shard, the spans of rows to compute, whether or not pieces have them already.
    older : by shard, the file that has its other rows, with its SHA-256.
    sources : of each row, as JSON values, what it is made from.
    settings : JSON values, whatever else the task must know.
    """

    work: Path
    header: FeatureHeader
    plan: ShardPlan
    ids: list[str]
    compress: bool
    needed: dict[int, list[Span]]
    older: dict[int, tuple[Path, str]]
    sources: list[Any]
    settings: dict[str, Any]

    def submit(self) -> JobRef:
        """Write the job into the work folder.

        Raises
        ------
        ShardError
            It cannot be written, as on a full disk.
        """
        values = {
            "header": asdict(self.header),
            "plan": asdict(self.plan),
            "ids": self.ids,
            "compress": self.compress,
            "needed": [[s, [[p.start, p.stop] for p in n]] for s, n in self.needed.items()],
            "older": [[s, str(path), sha256] for s, (path, sha256) in self.older.items()],
            "sources": self.sources,
            "settings": self.settings,
        }
        return submit(self.work, values)

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


# What a worker computes: the rows of these spans in order, a block at a time.
Compute = Callable[[ShardJob, Sequence[Span], Stopwatch], Iterator[tuple[int, RowBlock]]]


@lru_cache(maxsize=1)
def read_job(ref: JobRef) -> ShardJob:
    """Read a job, once in a process.

    Raises
    ------
    NotShared
        Its file is not there, or is another one.
    """
    values = ref.read()
    header = values["header"]
    header |= {name: tuple(header[name]) for name in ("row_shape", "trained_on")}
    return ShardJob(
        work=ref.path.parent,
        header=FeatureHeader(**header),
        plan=_plan(values["plan"]),
        ids=values["ids"],
        compress=values["compress"],
        needed={shard: [Span(*span) for span in spans] for shard, spans in values["needed"]},
        older={shard: (Path(older), sha256) for shard, older, sha256 in values["older"]},
        sources=values["sources"],
        settings=values["settings"],
    )


def make_shard(ref: JobRef, shard: int, compute: Compute, on_progress: OnProgress) -> ShardResult:
    """Make one shard of a job, on a worker.

    Any number of processes may do so at once: see `pipeline.shards.build.partial_shard`.

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
    job = read_job(ref)
    ref.require_active()
    older, older_sha256 = job.older.get(shard, (None, None))
    partial = PartialShard(job.work, job.header, job.plan, shard, job.ids, older)
    if found := _finished_before(partial, job.header, older_sha256):
        return ShardResult(shard, found, 0, {})
    partial.find_pieces()
    partial.mark_missing(np.concatenate([np.arange(s.start, s.stop) for s in job.needed[shard]]))
    watch = Stopwatch()
    computed = failed = 0
    reported = 0.0
    try:
        for first_row, block in compute(job, partial.missing, watch):
            with watch.timing(WRITE):
                partial.append(first_row, block)
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
        finished = finished_shard(partial.path, job.header, partial.ids, partial.span.start)
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
