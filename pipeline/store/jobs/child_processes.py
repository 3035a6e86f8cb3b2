"""Child processes that answer in lines of JSON, as many as threads ask at once.

Threads share one interpreter lock, which few of them fill where rows come as fast as for a GPU. A
child ends with its stdin, and so with its parent, however that ends.
"""

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

# A child need not wait for its parent to read an answer of this size.
_PIPE_BYTES = 1 << 20


class ChildDied(Exception):
    """A child ended before it had answered: its exit status, and the last line of its stderr."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(f"status {status}" + (f" ({line})" if line else ""))


class Child:
    """One process that runs a function of this package on its stdin and stdout."""

    def __init__(self, function: str, first: Any) -> None:
        """Start it; `function` is MODULE:NAME, `first` its first line."""
        module, _, name = function.partition(":")
        # Appended to the path, so that nothing next to the package shadows the standard library.
        root = str(Path(__file__).parents[3])
        program = f"import sys; sys.path.append({root!r}); from {module} import {name}; {name}()"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        assert isinstance(self._process.stdin, io.BufferedWriter)
        assert isinstance(self._process.stdout, io.BufferedReader)
        self._in, self._out = self._process.stdin, self._process.stdout
        with suppress(OSError):  # the system allows less: a child waits more often
            fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.send(first)

    def send(self, value: Any, data: Sequence[bytes] = ()) -> None:
        """Send a line of JSON and the bytes that it announces."""
        # A child that has died is reported by `reply`, with its exit status.
        with suppress(BrokenPipeError):
            self._in.write(json.dumps(value).encode() + b"\n")
            self._in.writelines(data)
            self._in.flush()

    def reply(self) -> Any:
        """Return the value of the next line, or raise `ChildDied`."""
        if line := self._out.readline():
            return json.loads(line)
        raise self._died()

    def fill(self, array: np.ndarray) -> None:
        """Read the bytes of an array, or raise `ChildDied`."""
        if self._out.readinto(array.reshape(-1).data) != array.nbytes:
            raise self._died()

    def end(self) -> None:
        """End it."""
        self._wait()
        self._errors.close()

    def _wait(self) -> None:
        with suppress(OSError, ValueError):  # ValueError: its streams are closed
            self._process.communicate()
        self._process.wait()

    def _died(self) -> ChildDied:
        self._wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return ChildDied(self._process.returncode, lines[-1] if lines else "")


class ChildProcesses:
    """Processes that run one function; they start when needed, and end with this object."""

    def __init__(self, function: str, first: Any = None) -> None:
        self._how = function, first
        self._idle: deque[Child] = deque()
        self._end = weakref.finalize(self, _end, self._idle)

    @contextmanager
    def one(self) -> Iterator[Child]:
        """Yield a child that no other thread uses; an exception ends it."""
        try:
            child = self._idle.pop()
        except IndexError:
            child = Child(*self._how)
        try:
            yield child
        except BaseException:
            child.end()
            raise
        self._idle.append(child)


def _end(children: deque[Child]) -> None:
    while children:
        children.pop().end()


def answering() -> tuple[io.BufferedReader, io.BufferedWriter]:
    """Return the input and the output of this process, a child whose parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries may print to stdout too.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    given = sys.stdin.buffer
    assert isinstance(given, io.BufferedReader)
    return given, out
