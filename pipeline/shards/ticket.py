"""A ticket: names a file that the command has written for its workers, and finds it again."""

import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipeline.canonical import canonical_json, sha256_of_file, write_text
from pipeline.shards.format import ShardError
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
class Ticket:
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


def issue(work: Path, values: dict[str, Any]) -> Ticket:
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
    return Ticket(path, sha256_of_file(path))
