"""Untrusted files are read in another process first: C code may hang or crash on damaged ones.

No exception ends an endless loop in C or a segmentation fault, and HDF5 has both for some damaged
files. A helper process, started for the first untrusted file (0.25 s) and kept for the next ones,
calls the reader under limits of processor time, clock time and memory, and discards the result. If
it survives, the caller reads the file itself.

The helper is a fresh interpreter and not a fork, which would inherit the locks of all threads.
"""

import atexit
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

SECONDS = 10.0
"""Processor time that reading the structure of a file takes at most."""

BYTES = 1 << 29
"""Memory that reading the structure of a file takes at most."""

# Memory per byte of the file: text and compressed values take more than they do in the file.
_GROWTH = 20
# Slower than any machine, so that only an endless loop exceeds the limit.
_BYTES_PER_SECOND = 5e6
# Clock time per second of processor time: a library that waits forever ends too.
_CLOCK = 60
_ENDLESS = (signal.SIGPROF, signal.SIGALRM)
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_MEMORY = 3  # exit status
_STARTED, _DONE = b"started\n", b"done\n"

_lock = Lock()
_helper: "_Helper | None" = None
# Extended attribute of files that were written here; copies, changed files and downloads lack it.
_WRITTEN_HERE = "user.caption-feature-pipeline"


def crash_of(read: Callable[..., object], path: Path, *arguments: Any, size: int = 0) -> str | None:
    """Return how a reader hangs, crashes or takes all memory on a file, or None if it does not.

    Whatever the reader returns or raises is discarded. A file that `trust` knows is not tried, and
    neither is any file where the system cannot start another process.

    Parameters
    ----------
    read : function of a module, called as `read(path, *arguments)`; it must not change anything.
    path : file to read.
    arguments : JSON values.
    size : bytes that `read` reads in addition to the structure of the file.
    """
    if _is_trusted(path):
        return None
    seconds = SECONDS + size / _BYTES_PER_SECOND
    memory = BYTES + _GROWTH * size
    # The helper keeps the folder that was current when it started.
    where = str(path.absolute())
    request = [read.__module__, read.__qualname__, where, arguments, seconds, memory]
    with _lock:
        try:
            status = _running_helper().status_after(json.dumps(request).encode() + b"\n")
        except OSError:  # no memory or no process left, and most files are valid
            return None
        except BaseException:  # an interrupt: the reply to this request would still come
            _end_helper()
            raise
    if status == _MEMORY:
        return f"took more than {memory >> 20} MiB of memory to read it"
    return None if status is None else _reason(-status, seconds)


def trust(path: Path) -> None:
    """Record, with the file, that it was written here and therefore needs no trial.

    The record holds until the file is changed or copied. Where the file system has no extended
    attributes there is none.
    """
    with suppress(OSError):
        os.setxattr(path, _WRITTEN_HERE, _stamp(path))


def _is_trusted(path: Path) -> bool:
    try:
        return os.getxattr(path, _WRITTEN_HERE) == _stamp(path)
    except OSError:
        return False


def stop() -> None:
    """End the helper process, if there is one."""
    with _lock:
        _end_helper()


class _Helper:
    """A process that calls readers; see `serve`."""

    def __init__(self) -> None:
        # Last in the path, so that nothing beside the package shadows the standard library.
        root = str(Path(__file__).parents[1])
        program = f"import sys; sys.path.append({root!r}); import pipeline.guard as g; g.serve()"
        self._socket, theirs = socket.socketpair()
        with theirs, ExitStack() as undo:
            undo.enter_context(self._socket)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
            undo.pop_all()
        self._replies = self._socket.makefile("rb")

    def is_running(self) -> bool:
        return self._process.poll() is None

    def status_after(self, request: bytes) -> int | None:
        """Return the exit status of the process if the request ended it, else None.

        Raises
        ------
        OSError
            The process ended before it read the file.
        """
        self._socket.sendall(request)
        if self._replies.readline() != _STARTED:
            raise ConnectionError("the process that reads untrusted files could not start")
        return None if self._replies.readline() == _DONE else self._process.wait()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.leave()

    def leave(self) -> None:
        """Close this side, also in a fork, whose parent has the process."""
        self._process.returncode = 0  # or subprocess warns that it is still running
        self._replies.close()
        self._socket.close()


def _running_helper() -> _Helper:
    global _helper
    if _helper is not None and not _helper.is_running():
        _end_helper()
    _helper = _helper or _Helper()
    return _helper


def _end_helper() -> None:
    global _helper
    if _helper is not None:
        _helper.end()
        _helper = None


def _forget_helper() -> None:
    global _helper, _lock
    _lock = Lock()
    if _helper is not None:
        _helper.leave()
        _helper = None


def _stamp(path: Path) -> bytes:
    found = path.stat()
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}".encode()


def _reason(number: int, seconds: float) -> str | None:
    if number <= 0:
        return None
    if number in _ENDLESS:
        return f"did not finish reading it within {seconds:.0f} s"
    if number in _CRASHES:
        return f"crashed on reading it (signal {number})"
    return f"was killed while reading it (signal {number}), possibly for lack of memory"


def serve() -> None:
    """Read files as requests on stdin ask; reply on stdout before and after each."""
    # The parent ends this process on Ctrl-C; the others may be ignored by whoever started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, *_ENDLESS):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Libraries print to stdout too.
    replies = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        module, name, path, arguments, seconds, memory = json.loads(line)
        read = getattr(import_module(module), name)
        before = _peak_memory()
        os.write(replies, _STARTED)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, _CLOCK * seconds)
        with suppress(Exception):
            read(Path(path), *arguments)
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        if _peak_memory() - before > memory:
            sys.exit(_MEMORY)
        os.write(replies, _DONE)


def _peak_memory() -> int:
    # Not by getrusage, which has the peak of the parent if that was higher.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


atexit.register(stop)
os.register_at_fork(after_in_child=_forget_helper)
