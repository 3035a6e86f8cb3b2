"""Image reading in child processes, for devices that are faster than one Python process reads.

Threads share one interpreter lock, and reading stops scaling at about eight of them. Here each
thread that reads has a child process do it. Paths go to the child's stdin, a JSON line for several;
a JSON line on all of them and the pixels of their windows come back. What is behind a URL is read
here, since neighbours share its blocks: in place of a path, the line has the number of bytes that
follow it. A child ends with its stdin, and so with its parent, however that ends.
"""

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.images.decoding.decode import UnusableImage, fault_of_the_system, read_bytes
from pipeline.images.recipes import Crop, Recipe, Resize
from pipeline.images.region import Picture
from pipeline.images.transforms import Sample, read_windows
from pipeline.store.errors import FileReadError, PipelineError
from pipeline.store.objects.urls import url_of
from pipeline.store.progress import READ, Stopwatch

# Room for the windows of most recipes, so that a child need not wait for its parent to read them.
_PIPE_BYTES = 1 << 20
_Child = subprocess.Popen[bytes]


class ReaderProcesses:
    """Reading of images in child processes, as many as threads call it at once.

    Children start when they are needed, and end with this object.
    """

    def __init__(self, recipe: Recipe, window: Crop) -> None:
        self._rules = (recipe.decode, recipe.resize, window)
        self._idle: deque[_Child] = deque()
        self._end = weakref.finalize(self, _end, self._idle)

    def __call__(self, pictures: Sequence[Picture], watch: Stopwatch) -> list[Sample]:
        """Read, decode, resize and crop images in one child."""
        # Only files are read in children: regions share the decoded images of this process.
        paths = [picture for picture in pictures if isinstance(picture, Path)]
        if len(paths) < len(pictures):
            return [read_windows(picture, *self._rules, watch) for picture in pictures]
        try:
            child = self._idle.pop()
        except IndexError:
            child = self._started()
        with watch.timing(READ):
            given = [path if url_of(path) is None else _fetched(path) for path in paths]
        asked = [each for each in given if not isinstance(each, Sample)]
        reply, windows = _ask(child, asked, paths)
        self._idle.append(child)
        if reply["failed"]:
            raise FileReadError(reply["failed"])
        watch.add_all(reply["seconds"])
        read = (
            Sample(None if index is None else windows[index], *rest)
            for index, *rest in reply["samples"]
        )
        return [each if isinstance(each, Sample) else next(read) for each in given]

    def _started(self) -> _Child:
        decode, resize, window = self._rules
        # Appended to the path, so that nothing next to the package shadows the standard library.
        root = str(Path(__file__).parents[2])
        program = f"import sys; sys.path.append({root!r})"
        program += "; from pipeline.images.reader_processes import answer; answer()"
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        assert child.stdout is not None
        with suppress(OSError):  # the system allows less: a child waits more often
            fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        _send(child, [decode, asdict(resize), asdict(window)])
        return child


def _fetched(path: Path) -> bytes | Sample:
    """Return the bytes of an image, or why there are none."""
    try:
        return read_bytes(path)
    except UnusableImage as error:
        return Sample(None, 0, error.status, str(error))
    except (OSError, MemoryError) as error:
        raise fault_of_the_system(path, error) from error


def _ask(
    child: _Child, asked: Sequence[Path | bytes], paths: Sequence[Path]
) -> tuple[dict[str, Any], np.ndarray]:
    """Return the answer of a child on some files, and the windows of those that have any."""
    assert isinstance(child.stdout, io.BufferedReader)
    # A child that has died is reported below, with its exit status, not as a broken pipe.
    with suppress(BrokenPipeError):
        data = [each for each in asked if isinstance(each, bytes)]
        _send(child, [len(e) if isinstance(e, bytes) else str(e) for e in asked], data)
    if line := child.stdout.readline():
        reply = json.loads(line)
        windows = np.empty(reply["shape"], np.uint8)
        if child.stdout.readinto(windows.reshape(-1).data) == windows.size:
            return reply, windows
    _end(deque([child]))
    raise PipelineError(
        f"the process that reads images ended with status {child.returncode} while it read "
        f"{paths[0]} or one of the {len(paths) - 1} after it; finished rows are kept: check the "
        "files and the memory of the machine, and run the same command again"
    )


def _send(child: _Child, value: Any, data: Sequence[bytes] = ()) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(value).encode() + b"\n")
    child.stdin.writelines(data)
    child.stdin.flush()


def _end(children: deque[_Child]) -> None:
    while children:
        child = children.pop()
        with suppress(OSError):
            child.communicate()


def answer() -> None:
    """Read the images that stdin names, until it ends."""
    # The parent ends this process on Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    decode, resize, window = json.loads(sys.stdin.buffer.readline())
    rules = (decode, Resize(**resize), Crop(**window))
    # Libraries may print to stdout too.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while line := sys.stdin.buffer.readline():
        watch, failed = Stopwatch(), ""
        samples: list[tuple[int | None, int, int, str]] = []
        windows: list[np.ndarray] = []
        # All of them first: the bytes that are left would be the next line.
        pictures = [
            Path(each) if isinstance(each, str) else sys.stdin.buffer.read(each)
            for each in json.loads(line)
        ]
        try:
            for picture in pictures:
                sample = read_windows(picture, *rules, watch)
                index = None if sample.windows is None else len(windows)
                samples.append((index, sample.source_crc32, sample.status, sample.error))
                windows += [] if sample.windows is None else [sample.windows]
        except FileReadError as error:
            failed, windows = str(error), []
        reply = {
            "failed": failed, "samples": samples, "seconds": watch.seconds,
            "shape": (len(windows), *windows[0].shape) if windows else (0,),
        }  # fmt: skip
        out.write(json.dumps(reply).encode() + b"\n")
        for pixels in windows:
            out.write(np.ascontiguousarray(pixels).data)
        out.flush()
