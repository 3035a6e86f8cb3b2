"""Reading of untrusted files in a child process first, since C code may hang or crash on them.

No exception ends an endless loop in C or a segmentation fault, and HDF5 has both for some corrupt
files. A child process therefore calls the reader first, with limits on CPU time, wall time and
memory, and discards the result. If it survives, the caller reads the file itself.

The child is a fresh interpreter, which starts in 0.25 s, not a fork, which would inherit the locks
of all threads.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

SECONDS = 10.0
"""Maximum CPU time for reading the structure of a file, in seconds."""

BYTES = 1 << 29
"""Maximum memory for reading the structure of a file, in bytes."""

# Memory per byte of the file: decoded text and decompressed values are larger than in the file.
_GROWTH = 20
# Below any machine's speed, so that only an endless loop exceeds the limit.
_BYTES_PER_SECOND = 5e6
# Wall time per second of CPU time: also ends a library that waits forever.
_CLOCK = 60
_ENDLESS = (signal.SIGPROF, signal.SIGALRM)
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_MEMORY = 3  # exit status
# Extended attribute of locally written files; copies, changed files and downloads lack it.
_WRITTEN_HERE = "user.caption-feature-pipeline"


def crash_of(read: Callable[..., object], path: Path, *arguments: Any) -> str | None:
    """Return how a reader that reads all of a file fails on it (as `crashes_of`), or None."""
    size = path.stat().st_size if path.is_file() else 0
    return crashes_of(read, [(path, size)], *arguments).get(path)


def crashes_of(
    read: Callable[..., object], files: Sequence[tuple[Path, int]], *arguments: Any
) -> dict[Path, str]:
    """Return the files on which a reader hangs, crashes or runs out of memory, and how it fails.

    `read` is a function of a module, without side effects, called as `read(path, *arguments)` with
    JSON values. `files` have the bytes that it reads beyond the structure.
    """
    waiting = [(path, size) for path, size in files if not _is_trusted(path)]
    crashes: dict[Path, str] = {}
    while waiting:
        begun, status = _try(read, waiting, arguments)
        # Stop if the process could not start, for example for lack of memory.
        if not (begun and status):
            break
        path, size = waiting[begun - 1]
        crashes[path] = _reason(status, size)
        waiting = waiting[begun:]
    return crashes


def trust(path: Path) -> None:
    """Mark a file as written locally; the mark is void once the file is changed or copied."""
    with suppress(OSError):  # without extended attributes nothing is marked
        os.setxattr(path, _WRITTEN_HERE, _stamp(path))


def _is_trusted(path: Path) -> bool:
    try:
        return os.getxattr(path, _WRITTEN_HERE) == _stamp(path)
    except OSError:
        return False


def _stamp(path: Path) -> bytes:
    status = path.stat()
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}".encode()


def _try(
    read: Callable[..., object], files: Sequence[tuple[Path, int]], arguments: Sequence[Any]
) -> tuple[int, int]:
    """Return how many files the child process has started to read, and its exit status."""
    limits = [(str(path), _seconds(size), _memory(size)) for path, size in files]
    request = json.dumps([read.__module__, read.__qualname__, limits, arguments])
    # Appended to the path, so that nothing next to the package shadows the standard library.
    root = str(Path(__file__).parents[2])
    program = (
        f"import sys; sys.path.append({root!r}); import pipeline.store.guard as g; g.read_all()"
    )
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    except OSError:
        return 0, 0
    with process:
        try:
            begun, _ = process.communicate(request.encode())
        except BaseException:  # an interrupt, after which subprocess does not wait
            process.kill()
            process.wait()
            raise
    return len(begun), process.returncode


def _seconds(size: int) -> float:
    return SECONDS + size / _BYTES_PER_SECOND


def _memory(size: int) -> int:
    return BYTES + _GROWTH * size


def _reason(status: int, size: int) -> str:
    if status == _MEMORY:
        return f"used more than {_memory(size) >> 20} MiB of memory to read it"
    if -status in _ENDLESS:
        return f"did not finish reading it within {_seconds(size):.0f} s"
    if -status in _CRASHES:
        return f"crashed while reading it (signal {-status})"
    return f"was killed while reading it (signal {-status}), possibly for lack of memory"


def read_all() -> None:
    """Read the files that a request on stdin names; write a byte to stdout before each."""
    # The parent ends this process on Ctrl-C; the other signals may be ignored by inheritance.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, *_ENDLESS):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, name, files, arguments = json.load(sys.stdin)
    read = getattr(import_module(module), name)
    # Libraries may print to stdout too.
    begun = os.dup(1)
    os.dup2(2, 1)
    for path, seconds, memory in files:
        before = _peak_memory()
        os.write(begun, b".")
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, _CLOCK * seconds)
        with suppress(Exception):
            read(Path(path), *arguments)
        if _peak_memory() - before > memory:
            sys.exit(_MEMORY)


def _peak_memory() -> int:
    # Not getrusage, which reports the parent's peak if that was higher.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
