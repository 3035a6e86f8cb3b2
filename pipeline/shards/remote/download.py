"""Files that arrive: checked while they come, gone on with where they broke off."""

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO

from pipeline.shards.remote.http_remote import CONNECTIONS
from pipeline.shards.remote.remote import (
    ATTEMPTS,
    Backoff,
    ExchangeError,
    NoByteRanges,
    Remote,
    RemoteError,
    TransientError,
)
from pipeline.shards.remote.spans import Spans

COPIES = 2
# Bytes between two wanted runs that are moved with them: asking around them takes longer.
_GAP = 1 << 14
_PIECE = 1 << 20
_SECONDS_TO_SHOW = 0.5
_BLOCK = 1 << 20


class DamagedCopy(ExchangeError):
    """What the other side has is not what was pushed."""


class Meter:
    """Counts bytes.

    Attributes
    ----------
    moved : that came from the other side.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        """Take what gets a line; start at 0."""
        self.moved = 0
        self._log, self._last = log, ""
        self._lock = threading.Lock()

    def log(self, line: str) -> None:
        """Give a line on, but once where several threads have the same to say."""
        with self._lock:
            if line != self._last:
                self._log(line)
            self._last = line

    def add(self, size: int) -> None:
        """Count bytes; threads may."""
        with self._lock:
            self.moved += size


class FileDownload:
    """A file that comes from the other side as `NAME.part`, and gets its name once it is right."""

    def __init__(
        self, remote: Remote, path: Path, sha256: str, size: int | None, most: int
    ) -> None:
        """Say what shall come.

        Parameters
        ----------
        remote : has it, under the name of `path`.
        path : where it shall lie.
        sha256, size : of it; None: the size is not known.
        most : bytes that it may have; what comes after them is not read.
        """
        self._remote, self._path, self._sha256 = remote, path, sha256
        self._size, self._most = size, most if size is None else size
        self._part = path.with_name(f"{path.name}.part")

    def fetch(self, meter: Meter, show: Callable[[int], None]) -> None:
        """Fetch what is missing, and check all of it.

        Parameters
        ----------
        meter : counts what comes.
        show : gets the number of bytes that are there.

        Raises
        ------
        DamagedCopy
            Several copies in a row were not what was pushed.
        RemoteError
            The other side does not answer, or does not have the file.
        """
        found: list[str] = []
        while len(found) < COPIES:
            digest = self._fetch(meter, show)
            if digest == self._sha256:
                self._part.replace(self._path)
                return
            self._part.unlink(missing_ok=True)
            found.append(digest)
            meter.log(f"{self._path.name} came with the SHA-256 {digest}, which is not its own")
        raise DamagedCopy(
            f"{self._remote.shown}/{self._path.name} came {COPIES} times, and not with the SHA-256 "
            f"{self._sha256}: found {', '.join(dict.fromkeys(found))}; the copy there is "
            "damaged or of another set: tell who publishes it, or pull from another place"
        )

    def _fetch(self, meter: Meter, show: Callable[[int], None]) -> str:
        """Add to the part until all is there; return its SHA-256."""
        backoff, starts = Backoff(meter.log), 1
        with self._part.open("ab+") as stream:
            digest, size = self._known(stream)
            while size < self._most:
                show(size)
                blocks = self._remote.read(self._path.name, size)
                try:
                    for block in blocks:
                        block = block[: self._most - size]
                        stream.write(block)
                        digest.update(block)
                        size += len(block)
                        meter.add(len(block))
                        show(size)
                        backoff.progressed()
                        if size == self._most:
                            break
                    if self._size is None:
                        break
                    if size < self._most:
                        raise TransientError(
                            f"{self._remote.shown}/{self._path.name} ended after {size:,} of "
                            f"{self._most:,} bytes"
                        )
                except NoByteRanges as error:
                    starts += 1
                    if starts > ATTEMPTS:
                        raise RemoteError(
                            f"{error}, and broke off {ATTEMPTS} times; pull from another place"
                        ) from error
                    meter.log(f"{error}; {self._path.name} is fetched from its beginning")
                    stream.truncate(0)
                    digest, size = hashlib.sha256(), 0
                except TransientError as error:
                    stream.flush()
                    backoff.failed(error)
                finally:
                    blocks.close()
            stream.flush()
            os.fsync(stream.fileno())
        return digest.hexdigest()

    def _known(self, stream: BinaryIO) -> tuple["hashlib._Hash", int]:
        """Return digest and number of the bytes that are there; too many are none."""
        digest, size = hashlib.sha256(), 0
        if stream.seek(0, os.SEEK_END) > self._most:
            stream.truncate(0)
        stream.seek(0)
        while block := stream.read(_BLOCK):
            digest.update(block)
            size += len(block)
        return digest, size


def fetch_spans(
    remote: Remote,
    name: str,
    path: Path,
    spans: Spans,
    meter: Meter,
    show: Callable[[int], None],
) -> None:
    """Fetch some bytes of a file into their places in `path`, several pieces at a time.

    Nothing is checked here. What lies closely together comes in one piece; of that, too, only the
    asked bytes are written.

    Parameters
    ----------
    remote, name : who has the file, and under which name.
    path : a file that is there, to write to.
    spans : the bytes that are asked for.
    meter : counts what comes.
    show : gets the number of bytes that this call has fetched so far.

    Raises
    ------
    NoByteRanges
        The other side does not serve ranges of bytes.
    RemoteError
        It does not answer, or does not have the file.
    """
    pieces = _pieces(spans)
    waiting: SimpleQueue[Spans] = SimpleQueue()
    ended: SimpleQueue[Exception | None] = SimpleQueue()
    for piece in pieces:
        waiting.put(piece)
    before, total = meter.moved, bytes_moved_for(spans)
    with path.open("rb+") as stream, _Target(stream.fileno()) as target:
        # Daemons: an interrupt does not wait for answers, which may take a minute to time out.
        for _ in range(min(CONNECTIONS, len(pieces))):
            arguments = (remote, name, waiting, ended, target, meter)
            threading.Thread(target=_fetch_pieces, args=arguments, daemon=True).start()
        left = len(pieces)
        while left:
            with suppress(Empty):
                if error := ended.get(timeout=_SECONDS_TO_SHOW):
                    raise error
                left -= 1
            show(min(meter.moved - before, total))
        os.fsync(stream.fileno())


def bytes_moved_for(spans: Spans) -> int:
    """Return how many bytes `fetch_spans` moves for some spans."""
    return sum(piece[-1][1] - piece[0][0] for piece in _pieces(spans))


def _pieces(spans: Spans) -> list[Spans]:
    """Return spans in groups that one request asks for, long ones cut."""
    cut = [
        (start, min(start + _PIECE, last))
        for first, last in spans
        for start in range(first, last, _PIECE)
    ]
    pieces: list[Spans] = []
    for start, stop in cut:
        if pieces and start - pieces[-1][-1][1] <= _GAP and stop - pieces[-1][0][0] <= _PIECE:
            pieces[-1].append((start, stop))
        else:
            pieces.append([(start, stop)])
    return pieces


class _Target:
    """An open file that threads write to until its context is left; then they raise."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._lock = descriptor, threading.Lock()
        self.closed = threading.Event()

    def __enter__(self) -> "_Target":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.closed.set()

    def write(self, data: bytes, place: int) -> None:
        """Write bytes to their place."""
        with self._lock:
            if self.closed.is_set():
                raise RemoteError("stopped, as another piece failed")
            os.pwrite(self._descriptor, data, place)


def _fetch_pieces(
    remote: Remote,
    name: str,
    waiting: "SimpleQueue[Spans]",
    ended: "SimpleQueue[Exception | None]",
    target: _Target,
    meter: Meter,
) -> None:
    """Fetch pieces until none waits; say of each that it is there, or what went wrong."""
    with suppress(Empty):
        while not target.closed.is_set():
            piece = waiting.get_nowait()
            try:
                _fetch_piece(remote, name, piece, target, meter)
                ended.put(None)
            except Exception as error:
                ended.put(error)


def _fetch_piece(remote: Remote, name: str, piece: Spans, target: _Target, meter: Meter) -> None:
    """Fetch a piece of a remote file and write its spans to their places as they come."""
    backoff = Backoff(meter.log, target.closed.wait)
    place, end = piece[0][0], piece[-1][1]
    while place < end:
        try:
            with closing(remote.read(name, place, end)) as blocks:
                for block in blocks:
                    for start, stop in piece:
                        first, last = max(start, place), min(stop, place + len(block))
                        if first < last:
                            target.write(block[first - place : last - place], first)
                    place += len(block)
                    meter.add(len(block))
                    backoff.progressed()
            if place < end:
                raise TransientError(f"{remote.shown}/{name} ended at byte {place:,}")
        except TransientError as error:
            if target.closed.is_set():
                raise
            backoff.failed(error)
