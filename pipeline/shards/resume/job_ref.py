"""A job for workers: one file in the work folder, of which a task reads only its own lines.

The first line says what all tasks need, each other line what one task needs. The command writes
the file once; with a task travel the file's path and where its lines lie, with their SHA-256, so
that neither a task nor what a worker reads for it grows with the job. The file's presence says
that the run goes on: workers stop soon after it has gone.
"""

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipeline.files import appearing_whole, parse_json
from pipeline.hashing import canonical_json
from pipeline.shards.format import ShardError
from pipeline.shards.writer import explained

JOB_FILES = "job-*.jsonl"
# A network file system may show a new file to other machines some seconds late.
PATIENCE_SECONDS = 10.0


class NotShared(ShardError):
    """One machine does not see a file that another has written, or sees another file there."""


class RunEnded(ShardError):
    """The run that submitted a job has ended."""


@dataclass(frozen=True)
class Line:
    """A line of a job's file: its first byte, its length in bytes, its SHA-256."""

    start: int
    length: int
    sha256: str


@dataclass(frozen=True)
class JobRef:
    """Refers to a submitted job, or to what one task needs of it.

    Attributes
    ----------
    path : of the job's file.
    common : the line that all tasks read.
    own : the line of one task; None: the job has no others.
    """

    path: Path
    common: Line
    own: Line | None = None

    def read(self) -> dict[str, Any]:
        """Return the JSON values that all tasks need.

        Raises
        ------
        NotShared
            The file is not there, or is another one.
        """
        if not appears(self.path):
            raise NotShared(
                f"worker {socket.gethostname()} does not see {self.path}, which this run has "
                "written; the output must lie in a folder that all workers share under the same "
                "path: mount it there, or give another `out=...`"
            )
        return self._values(self.common)

    def read_own(self) -> dict[str, Any]:
        """Return the JSON values that one task needs, once its process has seen the others.

        Raises
        ------
        RunEnded
            The job has been cancelled.
        NotShared
            The file is another one.
        """
        assert self.own is not None
        return self._values(self.own)

    def cancel(self) -> None:
        """Remove the file: workers keep the rows that they have, and stop."""
        self.path.unlink(missing_ok=True)

    def require_active(self) -> None:
        """Check that the job has not been cancelled.

        Raises
        ------
        RunEnded
        """
        if not self.path.is_file():
            raise self._ended()

    def _values(self, line: Line) -> dict[str, Any]:
        try:
            with self.path.open("rb") as stream:
                stream.seek(line.start)
                data = stream.read(line.length)
        except FileNotFoundError as error:
            raise self._ended() from error
        if sha256(data).hexdigest() != line.sha256:
            raise NotShared(
                f"worker {socket.gethostname()} sees another file at {self.path} than the one that "
                "this run has written; mount the same shared folder on all workers, or give "
                "another `out=...`"
            )
        values: dict[str, Any] = parse_json(data)
        return values

    def _ended(self) -> RunEnded:
        return RunEnded(
            f"{self.path} was cancelled: the run that wrote it has ended; finished rows are kept"
        )


def submit(
    work: Path, common: dict[str, Any], own: Iterable[dict[str, Any]] = ()
) -> tuple[JobRef, list[JobRef]]:
    """Write a job into a work folder, a line at a time.

    Parameters
    ----------
    work : the folder.
    common : JSON values that all tasks need.
    own : JSON values that each task needs for itself, which are never all in memory.

    Returns
    -------
    job : refers to what all tasks need.
    tasks : refer to what each needs, in the order of `own`.

    Raises
    ------
    ShardError
        It cannot be written, as on a full disk.
    """
    path = work / JOB_FILES.replace("*", uuid4().hex[:12])
    lines: list[Line] = []
    with explained(path), appearing_whole(path) as part, part.open("wb") as stream:
        for values in chain([common], own):
            data = canonical_json(values).encode() + b"\n"
            lines.append(Line(stream.tell(), len(data), sha256(data).hexdigest()))
            stream.write(data)
    job = JobRef(path, lines[0])
    return job, [JobRef(path, lines[0], line) for line in lines[1:]]


def appears(path: Path) -> bool:
    """Wait some seconds for a file of another machine; return whether it is there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
