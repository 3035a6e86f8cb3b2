"""Guard processes of a campaign: forks of one that has imported the readers, under the same limits.

`pipeline.store.guard` starts a fresh interpreter for each trial, most of whose 0.25 s are imports,
and a campaign makes thousands of trials. Here one process imports everything, has a single thread,
and forks a child for each trial. `tests/store/test_guard.py` tests the fresh interpreters.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from pipeline.store import guard

_LONGEST_MESSAGE = 1 << 16
_SECONDS_TO_END = 10
_PROGRAM = (
    "import sys; sys.path.append({root!r}); import bench.endurance.warm_guard as w; w.serve({fd})"
)


class WarmGuard:
    """A process that forks guard processes; its `attempt` is used in place of `guard._try`."""

    def __init__(self) -> None:
        """Start nothing; the process starts with the first trial."""
        self._fresh, self._owner, self._lock = guard._try, os.getpid(), Lock()
        self._server: tuple[socket.socket, subprocess.Popen[bytes]] | None = None

    def attempt(
        self, read: Callable[..., object], files: Sequence[tuple[Path, int]], arguments: Any
    ) -> tuple[int, int]:
        """Return how many files a forked process has begun to read, and its exit status."""
        if os.getpid() != self._owner:  # a test's fork, which may be killed between two messages
            return self._fresh(read, files, arguments)
        limits = [(str(p), guard._seconds(size), guard._memory(size)) for p, size in files]
        request = json.dumps([read.__module__, read.__qualname__, limits, arguments])
        with self._lock:
            try:
                return self._ask(request.encode())
            except BaseException:  # an interrupt: the reply would be taken for the next one's
                self.stop()
                raise

    def _ask(self, request: bytes) -> tuple[int, int]:
        server, _ = self._server = self._server or _started()
        (asked, told), (begun, begins) = os.pipe(), os.pipe()
        with os.fdopen(told, "wb") as stream, os.fdopen(begun, "rb") as dots:
            socket.send_fds(server, [str(Path.cwd()).encode()], [asked, begins])
            os.close(asked)
            os.close(begins)
            stream.write(request)
            stream.close()
            return len(dots.read()), int(server.recv(_LONGEST_MESSAGE))

    def stop(self) -> None:
        """End the process."""
        if self._server is None:
            return
        (connection, process), self._server = self._server, None
        # Not `close`: forks of this process, such as workers of a loader that is not yet collected,
        # have the connection too, and would leave it open.
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        program = _PROGRAM.format(root=str(Path(__file__).parents[2]), fd=other.fileno())
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    return own, process


def serve(descriptor: int) -> None:
    """Fork a guard process for each message until the other end is closed."""

    # Ctrl-C is for the tests, which end this process by closing their end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as client:
        while True:
            folder, streams, *_ = socket.recv_fds(client, _LONGEST_MESSAGE, 2)
            if not folder:
                return
            if (child := os.fork()) == 0:
                _read(folder.decode(), streams)
            for stream in streams:
                os.close(stream)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            client.send(str(status).encode())


def _read(folder: str, streams: Sequence[int]) -> None:
    status = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        guard.read_all()
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        os._exit(status)
