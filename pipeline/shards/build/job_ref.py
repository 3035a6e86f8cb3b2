"""A job for workers: one JSON file in the work folder, and a reference to it that travels.

The command writes the file once and sends its path and SHA-256 with every task, so that a task is
small however long the job is. The file's presence says that the run goes on: workers stop soon
after it has gone.
"""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipeline.files import write_text
from pipeline.hashing import canonical_json, sha256_of_file
from pipeline.shards.format import ShardError
from pipeline.shards.write import explained

JOB_FILES = "job-*.json"
# A task reports with it how far it is; the command's own function gets the same arguments.
OnProgress = Callable[..., None]

# A network file system may show a new file to other machines some seconds late.
PATIENCE_SECONDS = 10.0


class NotShared(ShardError):
    """One machine does not see a file that another has written, or sees another file there."""


class RunEnded(ShardError):
    """The run that submitted a job has ended."""


@dataclass(frozen=True)
class JobRef:
    """Refers to a submitted job: path and SHA-256 of its file."""

    path: Path
    sha256: str

    def read(self) -> dict[str, Any]:
        """Return the JSON values of the job.

        Raises
        ------
        NotShared
            The file is not there, or is another one.
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
            raise RunEnded(
                f"{self.path} was cancelled: the run that wrote it has ended; finished rows are "
                "kept"
            )


def submit(work: Path, values: dict[str, Any]) -> JobRef:
    """Write a job into a work folder.

    Raises
    ------
    ShardError
        It cannot be written, as on a full disk.
    """
    path = work / JOB_FILES.replace("*", uuid4().hex[:12])
    text = canonical_json(values)
    with explained(path, len(text)):
        write_text(path, text)
    return JobRef(path, sha256_of_file(path))


def appears(path: Path) -> bool:
    """Wait some seconds for a file of another machine; return whether it is there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
