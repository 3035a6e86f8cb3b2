"""An order: what workers must know to make shards, as one file in the work folder.

The command writes it once; tasks carry its path and SHA-256 and the number of a shard. A worker
goes on from the pieces that lie in the work folder, puts down pieces of its own, and leaves the
finished shard there. It stops when the order is withdrawn, which is when the run has ended.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from pipeline.files import write_text
from pipeline.hashing import canonical_json, sha256_of_file
from pipeline.progress import WRITE, Stopwatch
from pipeline.shards.build.partial_shard import PartialShard
from pipeline.shards.build.publish import finished_shard
from pipeline.shards.format import (
    OK,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardEntry,
    ShardError,
)
from pipeline.shards.plan import ShardPlan, Span
from pipeline.shards.write import explained

ORDERS = "order-*.json"

# A network file system may show a new file to other machines some seconds late.
PATIENCE_SECONDS = 10.0


class NotShared(ShardError):
    """A worker does not see a file that the command has written, or sees another one."""


class RunEnded(ShardError):
    """The run that ordered a shard has ended."""


def appears(path: Path) -> bool:
    """Wait a while for a file of another machine, and say whether it is there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@dataclass(frozen=True)
class JobRef:
    """Names an order: where it lies and what it is."""

    path: Path
    sha256: str

    @property
    def valid(self) -> bool:
        """Whether the order has not been withdrawn."""
        return self.path.is_file()

    def withdraw(self) -> None:
        """Remove the order: workers put down what they have and stop."""
        self.path.unlink(missing_ok=True)

    def read(self) -> dict[str, Any]:
        """Return the JSON values of the order.

        Raises
        ------
        NotShared
            It is not there, or is another file.
        """
        host = socket.gethostname()
        if not appears(self.path):
            raise NotShared(
                f"worker {host} does not see {self.path}, which this run has written; the output "
                "must lie in a folder that all workers share under the same path: mount it there, "
                "or give another --out"
            )
        if sha256_of_file(self.path) != self.sha256:
            raise NotShared(
                f"worker {host} sees another file at {self.path} than the one that this run has "
                "written; mount the same shared folder on all workers, or give another --out"
            )
        values: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return values


def issue(work: Path, values: dict[str, Any]) -> JobRef:
    """Write an order into a work folder.

    Raises
    ------
    ShardError
        It cannot be written, as on a full disk.
    """
    path = work / ORDERS.replace("*", uuid4().hex[:12])
    text = canonical_json(values)
    with explained(path, len(text)):
        write_text(path, text)
    return JobRef(path, sha256_of_file(path))


_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True)
class MadeShard:
    """What a worker says of a shard that it has made.

    Attributes
    ----------
    shard : its number.
    entry : its line of the index, every byte of the file having been checked.
    computed : rows that this worker has computed, the others it found.
    seconds : by stage.
    worker : the host that made it.
    """

    shard: int
    entry: ShardEntry
    computed: int
    seconds: dict[str, float] = field(hash=False)
    worker: str = field(default_factory=socket.gethostname)

    def require(self, path: Path) -> None:
        """Check that `path`, which may appear late, is the file that the worker made.

        Raises
        ------
        NotShared
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


@dataclass(frozen=True)
class ShardJob:
    """What is to be made.

    Attributes
    ----------
    work : the work folder. header, plan, ids, compress : of the feature set.
    needed : by shard, the spans of rows that are to be computed, pieces or not.
    older : by shard, the file that has its other rows, with the SHA-256 of it.
    sources : of each row, as JSON values, what it is made from.
    how : JSON values, whatever else the task must know.
    """

    work: Path
    header: FeatureHeader
    plan: ShardPlan
    ids: list[str]
    compress: bool
    needed: dict[int, list[Span]]
    older: dict[int, tuple[Path, str]]
    sources: list[Any]
    how: dict[str, Any]

    def issue(self) -> JobRef:
        """Write the order into the work folder.

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
            "how": self.how,
        }
        return issue(self.work, values)

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
        if unlike := self.header.difference(found.facts()):
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


# What a worker computes: the rows of these spans in order, a block at a time.
Compute = Callable[[ShardJob, Sequence[Span], Stopwatch], Iterator[tuple[int, RowBlock]]]
# Told the shard, how many of its rows are there, and how many of the new ones failed.
Tell = Callable[[tuple[int, int, int]], None]


@lru_cache(maxsize=1)
def read_job(ticket: JobRef) -> ShardJob:
    """Read an order, once in a process.

    Raises
    ------
    NotShared
        It is not there, or is another file.
    """
    values = ticket.read()
    header = values["header"]
    header["row_shape"] = tuple(header["row_shape"])
    return ShardJob(
        work=ticket.path.parent,
        header=FeatureHeader(**header),
        plan=_plan(values["plan"]),
        ids=values["ids"],
        compress=values["compress"],
        needed={shard: [Span(*span) for span in spans] for shard, spans in values["needed"]},
        older={shard: (Path(older), sha256) for shard, older, sha256 in values["older"]},
        sources=values["sources"],
        how=values["how"],
    )


def make_shard(ticket: JobRef, shard: int, compute: Compute, tell: Tell) -> MadeShard:
    """Make one shard of an order, on a worker.

    Any number of processes may do so at once: see `pipeline.shards.build.partial_shard`.

    Raises
    ------
    NotShared
        This machine does not see the order.
    RunEnded
        The order was withdrawn; rows that are done are kept.
    ShardError
        Values cannot be stored, or the disk is full; rows that are done are kept.
    """
    order = read_job(ticket)
    _require_valid(ticket)
    older, older_sha256 = order.older.get(shard, (None, None))
    making = PartialShard(order.work, order.header, order.plan, shard, order.ids, older)
    if found := _finished_before(making, order.header, older_sha256):
        return MadeShard(shard, found, 0, {})
    making.find_pieces()
    making.mark_missing(np.concatenate([np.arange(s.start, s.stop) for s in order.needed[shard]]))
    watch = Stopwatch()
    computed = failed = 0
    look = 0.0
    try:
        for first_row, block in compute(order, making.missing, watch):
            with watch.timing(WRITE):
                making.append(first_row, block)
            computed += len(block)
            failed += int((block.status != OK).sum())
            if time.monotonic() - look >= _SECONDS_BETWEEN_LOOKS:
                look = time.monotonic()
                tell((shard, len(making.span) - sum(map(len, making.missing)), failed))
                _require_valid(ticket)
        _require_valid(ticket)
        with watch.timing(WRITE):
            making.finish(order.compress)
    except BaseException:
        # Not where the run has finished without this worker and has removed the folder.
        if order.work.is_dir():
            making.flush()
        raise
    with watch.timing(WRITE):
        finished = finished_shard(making.path, order.header, making.ids, making.span.start)
    return MadeShard(shard, finished.entry, computed, watch.seconds)


def _finished_before(
    making: PartialShard, header: FeatureHeader, older_sha256: str | None
) -> ShardEntry | None:
    """Return what a worker had finished that was lost before it could say so."""
    try:
        if not making.path.is_file() or sha256_of_file(making.path) == older_sha256:
            return None
        return finished_shard(making.path, header, making.ids, making.span.start).entry
    except (DamagedShard, OtherShard, FileNotFoundError):
        return None


def _require_valid(ticket: JobRef) -> None:
    if not ticket.valid:
        raise RunEnded(
            f"{ticket.path} was withdrawn: the run that wrote it has ended; what was done is kept"
        )


def _plan(values: dict[str, Any]) -> ShardPlan:
    older = values["older"]
    return ShardPlan(values["rows"], values["rows_per_shard"], _plan(older) if older else None)
