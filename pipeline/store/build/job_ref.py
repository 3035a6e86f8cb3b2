"""Job files: one file in the work folder, of which each task reads only its own lines.

The first line holds the values that all tasks need, each further line those of one task. The
command writes the file once; a task is sent the file's path and the offsets and SHA-256 of its
lines, so neither message nor reads grow with the job. The file exists as long as the run: workers
stop soon after it is removed.
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

from pipeline.store.files import appearing_whole, parse_json
from pipeline.store.hashing import canonical_json
from pipeline.store.shards.format import ShardError
from pipeline.store.shards.writer import explained

JOB_FILES = "job-*.jsonl"
# A network file system may show new files to other machines some seconds late.
PATIENCE_SECONDS = 10.0


class NotShared(ShardError):
    """A file written by one machine is missing or different on another."""


class RunEnded(ShardError):
    """The run that submitted a job has ended."""


@dataclass(frozen=True)
class Line:
    """Location of a line in a job file.

    Attributes
    ----------
    start, length : int. Byte offset, and length in bytes.
    sha256 : str. SHA-256 of the line.
    """

    start: int
    length: int
    sha256: str


@dataclass(frozen=True)
class JobRef:
    """Reference to a submitted job or to the part of one task.

    Attributes
    ----------
    path : Path. The job file.
    common : Line. The line that all tasks read.
    own : Line or None. The line of one task; None: no such line.
    """

    path: Path
    common: Line
    own: Line | None = None

    def read(self) -> dict[str, Any]:
        """Return the JSON values that all tasks need.

        Raises
        ------
        NotShared
            The file is missing, or is another one.
        """
        if not appears(self.path):
            raise NotShared(
                f"worker {socket.gethostname()} does not see {self.path}, which this run has "
                "written; the output must be in a folder that all workers share under the same "
                "path: mount it there, or choose another `out=...`"
            )
        return self._values(self.common)

    def read_own(self) -> dict[str, Any]:
        """Return the JSON values of one task, after its process has read the common ones.

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
        """Remove the file: workers save their rows and stop."""
        self.path.unlink(missing_ok=True)

    def require_active(self) -> None:
        """Raise if the job has been cancelled.

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
                f"worker {socket.gethostname()} sees another file at {self.path} than this run has "
                "written; mount the same shared folder on all workers, or choose another `out=...`"
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
    """Write a job file line by line.

    Parameters
    ----------
    work : Path. The work folder.
    common : dict. JSON values that all tasks need.
    own : iterable of dict. JSON values of each task, consumed lazily.

    Returns
    -------
    job : JobRef. Reference without a task.
    tasks : list of JobRef. References of the tasks, in the order of `own`.

    Raises
    ------
    ShardError
        The file cannot be written, for example on a full disk.
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
    """Wait some seconds for a file of another machine; return whether it exists."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
