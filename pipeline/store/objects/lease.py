"""One writer for an output in a store: a lease, which its writer renews while it lives.

Leases have ascending numbers, and the highest is in force. One is created only if no other writer
has created it, which stores with conditional writes decide. The next writer creates the next lease
once the last one has ended or has not been renewed for `SECONDS`, and removes the older ones: tasks
of an older run stop when theirs is missing. No clock of another machine is compared.
"""

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retried import read_bounded
from pipeline.store.objects.retry import RemoteError

SECONDS = 30.0
"""After this time without renewal a writer counts as dead."""

_RENEWALS = 5  # in that time
_LEASE = re.compile(r"lease-(\d+)\.json")
_MOST_BYTES = 1 << 12


class Lease:
    """The lease of this process, renewed by a thread."""

    def __init__(self, folder: Remote, number: int, output: str) -> None:
        self._folder, self._number, self._output = folder, number, output
        self._renewed = time.time()  # `monotonic` stops while a machine sleeps
        self._lost = False
        self._ended = threading.Event()
        self._beats = 0
        self._state = "writing"
        self.name: str = _name(number)

    def content(self) -> bytes:
        """Return what the lease states of its writer."""
        about = {
            "host": socket.gethostname(), "machine": _machine(),
            "process": _process(os.getpid()), "beat": self._beats, "state": self._state,
        }  # fmt: skip
        return json.dumps(about, sort_keys=True).encode()

    def require(self) -> None:
        """Raise if another writer has taken over, for example after this machine slept."""
        slept = time.time() - self._renewed > SECONDS
        if self._lost or (slept and max(_leases(self._folder), default=0) != self._number):
            raise RemoteError(
                f"{self._output}: another run has taken over, since this one did not respond for "
                f"{SECONDS:.0f} s; its finished shards are kept"
            )

    def _renew(self) -> None:
        while not self._ended.wait(SECONDS / _RENEWALS):
            # The store may not respond for some time; `require` finds whether that was too long.
            with suppress(RemoteError):
                # Its successor has removed it; written again, tasks of this run would continue.
                if self._folder.size(self.name) is None:
                    self._lost = True
                    return
                self._beats += 1
                self._folder.put(self.name, self.content())
                self._renewed = time.time()

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the lease in the background, and end it afterwards."""
        thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._state = "ended"
            with suppress(RemoteError):
                if self._folder.size(self.name) is not None:
                    self._folder.put(self.name, self.content())


@contextmanager
def only_writer(folder: Remote, output: str, log: Callable[[str], None]) -> Iterator[Lease]:
    """Hold the lease in a folder, or raise if another writer of `output` does."""
    there = _leases(folder)
    number = max(there, default=0)
    if there and _is_alive(folder, number, log):
        raise RemoteError(
            f"{output} is being written by another run, {_writer(folder, number)}; wait for its "
            "end, or choose another output"
        )
    lease = Lease(folder, number + 1, output)
    try:
        created = folder.create(lease.name, lease.content())
    except RemoteError as error:
        if error.cause != "missing":
            raise
        raise RemoteError(
            f"{output}: its bucket does not exist; create it, or correct the URL"
        ) from error
    if not created:
        raise RemoteError(
            f"{output} is being written by another run, which has just begun; wait for its end, or "
            "choose another output"
        )
    with lease.renewed():
        for old in there:
            folder.remove(_name(old))
        yield lease


def _name(number: int) -> str:
    return f"lease-{number:06d}.json"


def _leases(folder: Remote) -> list[int]:
    return [int(match[1]) for name in folder.files() if (match := _LEASE.fullmatch(name))]


def _is_alive(folder: Remote, number: int, log: Callable[[str], None]) -> bool:
    """Return whether the writer of a lease renews it."""
    about = _about(folder, number)
    if about.get("state") == "ended":
        return False
    # Not by the name of the host: containers may share that, and see no process of each other.
    if _machine() and about.get("machine") == _machine():
        return about.get("process") == _process(str(about.get("process")).partition(" ")[0])
    log(f"waiting {SECONDS:.0f} s: {_writer(folder, number)} may still be writing")
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        time.sleep(SECONDS / _RENEWALS)
        if _about(folder, number) != about:
            return True
    return False


def _about(folder: Remote, number: int) -> dict[str, object]:
    data = read_bounded(folder, _name(number), _MOST_BYTES, lambda text: None)
    with suppress(ValueError):
        value = json.loads(data or b"{}")
        return value if isinstance(value, dict) else {}
    return {}


def _writer(folder: Remote, number: int) -> str:
    about = _about(folder, number)
    return f"process {str(about.get('process')).partition(' ')[0]} of {about.get('host')}"


def _machine() -> str:
    """Return what identifies this start of a system, and the processes that are seen; or ""."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process(number: object) -> str:
    """Return the number of a process and its time of start, or only the number if it ended."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return str(number)
    return f"{number} {fields[19]}"
