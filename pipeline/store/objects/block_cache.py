"""Remote files read through copies on this machine: one sparse file each, filled on demand.

A copy ends with a record: the CRC-32 of each block that it has. Whatever a killed process or a
power failure leaves differs from its record and is fetched again, so that processes share copies
without any order between them.
"""

import errno
import fcntl
import io
import mmap
import os
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.objects.cache_folder import SUFFIX, cache_folder, count_added, writing_cache
from pipeline.store.objects.locate import opened
from pipeline.store.objects.remote import Remote, Span
from pipeline.store.objects.retried import read_spans
from pipeline.store.objects.retry import RemoteError, retry
from pipeline.store.objects.urls import url_of
from pipeline.store.progress import QUIET

BLOCK = 1 << 18
# Blocks next to each other are one request of at most so many, and so many are read ahead.
_BLOCKS_PER_REQUEST = 16
_FILES_TOGETHER = 16
_BYTES_TOGETHER = 1 << 24
_PRESENT = 1 << 32
_RECORD_BYTES = 8
S = TypeVar("S")
T = TypeVar("T")


class CachedFile:
    """A file behind a URL, read through its copy; safe in threads, after a fork and pickled."""

    def __init__(self, path: str | Path, digest: str = "") -> None:
        """Open it; `digest` identifies its bytes if the store states no ETag or time."""
        self._path, self._digest = path, digest
        self._folder, _, self._name = str(url_of(path)).rpartition("/")
        self.size, self._state = self._now()
        # Without any proof that a copy is of the same bytes, there is a new one.
        proof = self._state or digest or uuid.uuid4().hex
        key = sha256_of_json([self._folder, self._name, self.size, proof, BLOCK])
        self.copy = cache_folder() / f"{key}{SUFFIX}"
        self._held = _Copy(self.copy, self.size)
        self._fetched = self._counted = 0
        # Both ends of an HDF5 file at once: what it holds, and the columns after the features.
        self.fetch([(0, 1), (self.size - 1, self.size)])

    def __reduce__(self) -> tuple[type["CachedFile"], tuple[str | Path, str]]:
        return type(self), (self._path, self._digest)

    def rows(
        self, offset: int, dtype: np.dtype, shape: tuple[int, ...], rows: npt.NDArray[np.int64]
    ) -> np.ndarray:
        """Return rows (len(rows), *shape[1:]) of an array that the file has at `offset`."""
        row_bytes = dtype.itemsize * int(np.prod(shape[1:]))
        with self._locked() as copy:
            self._fill(copy, _blocks_of(offset + rows * row_bytes, row_bytes))
            count = int(np.prod(shape))
            return np.frombuffer(copy.bytes, dtype, count, offset).reshape(shape)[rows]

    def fetch(self, spans: list[Span]) -> None:
        """Fetch the blocks of byte ranges together."""
        blocks = {b for start, stop in spans for b in range(start // BLOCK, -(-stop // BLOCK))}
        with self._locked() as copy:
            self._fill(copy, np.array(sorted(blocks), np.int64))

    def read_by(self, read: Callable[[io.RawIOBase], T]) -> T:
        """Return what `read` returns for the file as a stream; the blocks it needs are fetched."""
        # It starts again after each fetch: HDF5 holds a lock while it reads, for which the thread
        # of the connections may have to wait.
        ahead = end = 0
        with self._locked() as copy:
            while True:
                stream = _Stream(copy)
                try:
                    result = read(stream)
                except Exception:
                    if stream.missing is None:
                        raise
                if stream.missing is None:
                    return result
                first, last = stream.missing
                ahead = min(2 * ahead + 1, _BLOCKS_PER_REQUEST) if first == end else 0
                end = last + 1 + ahead
                self._fill(copy, np.arange(first, end))

    def require_unchanged(self) -> None:
        """Raise unless the bytes fetched so far are of the file that was opened."""
        if self._fetched and self._now() != (self.size, self._state):
            raise RemoteError(
                f"{self._remote.shown}/{self._name} has changed while it was read; open the "
                "feature set again"
            )

    def forget(self) -> None:
        """Discard all blocks, since some were found corrupt; raise if the file has changed."""
        self.require_unchanged()
        self.copy.unlink(missing_ok=True)

    @property
    def _remote(self) -> Remote:
        return opened(self._folder)

    def _now(self) -> tuple[int, str]:
        try:
            return retry(lambda: self._remote.state(self._name), QUIET.log)
        except RemoteError as error:
            if error.cause != "no ranges":
                raise
            raise RemoteError(f"{error}; `pipeline shards pull` fetches whole sets") from error

    def _fill(self, copy: "_Copy", wanted: npt.NDArray[np.int64]) -> None:
        """Fetch those of the blocks (ascending numbers) that the copy lacks."""
        wanted = wanted[wanted < copy.blocks]
        missing = [b for b in wanted[~copy.known[wanted]].tolist() if not copy.has(b)]
        if missing:
            spans = [(a * BLOCK, min(b * BLOCK, self.size)) for a, b in _runs(missing)]
            remote, log = self._remote, QUIET.log
            for (start, _), data in read_spans(remote, self._name, spans, _BYTES_TOGETHER, log):
                copy.store(start // BLOCK, data)
                self._fetched += len(data)

    @contextmanager
    def _locked(self) -> Iterator["_Copy"]:
        """Yield the copy, which is not removed before the block ends."""
        # Threads share the lock, so that one may end it while another reads. A copy that is then
        # removed is read to the end all the same, and replaced when it is read next.
        while True:
            copy = self._held
            _flock(copy.descriptor, fcntl.LOCK_SH)
            if os.fstat(copy.descriptor).st_nlink:
                break
            self._held = _Copy(self.copy, self.size)
        try:
            with suppress(OSError):  # the order of removal
                os.utime(copy.descriptor)
            yield copy
        finally:
            _flock(copy.descriptor, fcntl.LOCK_UN)
        if self._fetched > self._counted:
            added, self._counted = self._fetched - self._counted, self._fetched
            count_added(self.copy.parent, added)


def whole_file(path: Path) -> Path:
    """Return a path itself, or that of the copy of a file behind a URL, with all of its blocks."""
    if url_of(path) is None:
        return path
    file = CachedFile(path)
    file.fetch([(0, file.size)])
    return file.copy


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, also of one behind a URL."""
    if url_of(path) is None:
        return sha256_of_file(path)
    file = CachedFile(path)
    file.fetch([(0, file.size)])
    with file._locked() as copy:
        return sha256(copy.bytes).hexdigest()


class _Copy:
    """The sparse file of a remote file: its blocks, and their record."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.blocks = max(1, -(-size // BLOCK))
        length = self.blocks * (BLOCK + _RECORD_BYTES)
        with writing_cache(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            weakref.finalize(self, os.close, self.descriptor)
            os.ftruncate(self.descriptor, length)
            mapped = memoryview(mmap.mmap(self.descriptor, length, access=mmap.ACCESS_READ))
        self.bytes = mapped[:size]
        self._record = np.frombuffer(mapped, "<u8", self.blocks, self.blocks * BLOCK)
        # Compared with the record by this process.
        self.known = np.zeros(self.blocks, bool)

    def has(self, block: int) -> bool:
        """Return whether the copy has a block, by its record."""
        if recorded := int(self._record[block]):
            found = zlib.crc32(self.bytes[block * BLOCK : (block + 1) * BLOCK])
            self.known[block] = recorded == _PRESENT | found
        return bool(self.known[block])

    def store(self, first: int, data: bytes) -> None:
        """Write blocks from number `first` on, each followed by its record."""
        with writing_cache(self.path.parent):
            for number, start in enumerate(range(0, len(data), BLOCK), first):
                block = memoryview(data)[start : start + BLOCK]
                os.pwrite(self.descriptor, block, number * BLOCK)
                record = (_PRESENT | zlib.crc32(block)).to_bytes(_RECORD_BYTES, "little")
                os.pwrite(self.descriptor, record, self.blocks * BLOCK + number * _RECORD_BYTES)
                self.known[number] = True


class _Stream(io.RawIOBase):
    """A copy as a stream that fails where blocks are missing, and notes them."""

    def __init__(self, copy: _Copy) -> None:
        self._copy, self._at = copy, 0
        self.missing: tuple[int, int] | None = None  # first and last block

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._copy.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._copy.size - self._at))
        first, last = self._at // BLOCK, (self._at + count - 1) // BLOCK
        if not all(self._copy.known[b] or self._copy.has(b) for b in range(first, last + 1)):
            self.missing = first, last
            raise OSError(errno.EAGAIN, "blocks are missing")
        buffer[:count] = self._copy.bytes[self._at : self._at + count]
        self._at += count
        return count


def together(function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Return what `map` does, of functions that wait for the network at the same time."""
    return _pool(os.getpid()).map(function, items)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_FILES_TOGETHER, "remote-files")


def _blocks_of(starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """Return the numbers of all blocks of byte ranges of one length, ascending."""
    first, last = starts // BLOCK, (starts + max(length, 1) - 1) // BLOCK
    steps = range(int((last - first).max(initial=0)) + 1)
    return np.unique(np.concatenate([np.minimum(first + step, last) for step in steps]))


def _runs(blocks: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first number and end of blocks next to each other, for one request each."""
    first = end = blocks[0]
    for block in blocks:
        if block != end or end - first == _BLOCKS_PER_REQUEST:
            yield first, end
            first = block
        end = block + 1
    yield first, end


def _flock(descriptor: int, kind: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, kind)
