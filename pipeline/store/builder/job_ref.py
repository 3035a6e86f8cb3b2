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


@dataclass(frozen=True)
class Line:
    """Location of a line in a job file."""

    start: int  # byte offset
    length: int  # in bytes
    sha256: str


@dataclass(frozen=True)
class JobRef:
    """Reference to a submitted job or to the part of one task."""

    path: Path
    common: Line  # read by all tasks
    own: Line | None = None  # of one task

    def read(self) -> dict[str, Any]:
        """Return the JSON values that all tasks need."""
        if not appears(self.path):
            raise ShardError(
                f"worker {socket.gethostname()} does not see {self.path}, which this run has "
                "written; the output must be in a folder that all workers share under the same "
                "path: mount it there, or choose another `out=...`"
            )
        return self._values(self.common)

    def read_own(self) -> dict[str, Any]:
        """Return the JSON values of one task, after its process has read the common ones."""
        assert self.own is not None
        return self._values(self.own)

    def cancel(self) -> None:
        """Remove the file: workers save their rows and stop."""
        self.path.unlink(missing_ok=True)

    def require_active(self) -> None:
        """Raise if the job has been cancelled."""
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
            raise ShardError(
                f"worker {socket.gethostname()} sees another file at {self.path} than this run has "
                "written; mount the same shared folder on all workers, or choose another `out=...`"
            )
        values: dict[str, Any] = parse_json(data)
        return values

    def _ended(self) -> ShardError:
        return ShardError(
            f"{self.path} was cancelled: the run that wrote it has ended; finished rows are kept"
        )


def submit(
    work: Path, common: dict[str, Any], tasks: Iterable[dict[str, Any]] = ()
) -> tuple[JobRef, list[JobRef]]:
    """Write a job file line by line; return the reference to the job and those to its tasks."""
    # Lazily: the values of all tasks, such as millions of paths, are never in memory at once.
    path = work / JOB_FILES.replace("*", uuid4().hex[:12])
    lines: list[Line] = []
    with explained(path), appearing_whole(path) as part, part.open("wb") as stream:
        for values in chain([common], tasks):
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
