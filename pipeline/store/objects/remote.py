"""A folder on an fsspec file system: resumed reads, concurrent range reads and atomic writes."""

import asyncio
import errno
import io
import os
from bisect import bisect
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any
from urllib.parse import quote

from pipeline.store.objects.retry import Backoff, RemoteError, retry

_BLOCK = 1 << 20
_MOST_TOGETHER = 128
_LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_REFUSED = (PermissionError, NotImplementedError, IsADirectoryError, NotADirectoryError, ValueError)
# What identifies the bytes of a file in the listings of back ends.
_PROOFS = (
    "ETag", "etag", "md5Hash", "content_md5", "generation", "LastModified", "last_modified",
    "mtime", "created",
)  # fmt: skip
# Seconds for the event loop to cancel requests, and the longest wait for it.
_CANCELLING, _SETTLED_AT_LATEST = 0.02, 1.0

MOST_DESCRIPTION_BYTES = 1 << 24
"""Size limit of an index or `files.json`; parsing needs up to 30 times as much memory."""

Span = tuple[int, int]
"""Start and stop of a byte range."""


class Remote:
    """A folder on an fsspec file system."""

    def __init__(self, files: Any, root: str, shown: str, query: str | None = None) -> None:
        self._files, self._root, self._query = files, root, query
        self.shown: str = shown  # for messages: without user, password and query
        # "" or "?..." for HTTP(S), which is read-only.
        self.is_web: bool = query is not None

    def sibling(self, suffix: str) -> "Remote":
        """Return the folder with a suffix appended to its name."""
        return Remote(self._files, self._root + suffix, self.shown + suffix, self._query)

    def read(self, name: str, write: Callable[[bytes], bool], start: int = 0) -> None:
        """Pass the bytes of a file from `start` to `write`, until it returns False."""
        sink = _Sink(write)
        with self._explained(name), suppress(_Enough):
            if self.is_web:
                headers = {"Range": f"bytes={start}-"} if start else {}
                path, files = self._path(name), self._files
                _result(files, files._get_file(path, sink, chunk_size=_BLOCK, headers=headers))
            else:
                with self._files.open(self._path(name), "rb") as stream:
                    stream.seek(start)
                    while block := stream.read(_BLOCK):
                        sink.write(block)
        if sink.error is not None:
            raise sink.error

    def read_spans(self, name: str, spans: Sequence[Span]) -> list[bytes | RemoteError]:
        """Return the bytes of each range, requested together, or its transient error."""
        paths = [self._path(name)] * len(spans)
        starts, stops = [start for start, _ in spans], [stop for _, stop in spans]
        if self._files.async_impl:
            answers = _result(self._files, self._files._cat_ranges(paths, starts, stops))
        else:
            answers = self._files.cat_ranges(paths, starts, stops)
        return [self._checked(name, *each) for each in zip(spans, answers, strict=True)]

    def _checked(self, name: str, span: Span, answer: bytes | Exception) -> bytes | RemoteError:
        try:
            with self._explained(name):
                if isinstance(answer, Exception):
                    raise answer
                if len(answer) != span[1] - span[0]:
                    ended = f"the file ended at byte {span[0] + len(answer):,}"
                    raise RemoteError(ended, "transient")
            return answer
        except RemoteError as error:
            if error.cause != "transient":
                raise
            return error

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        try:
            with self._explained(name):
                self._files.invalidate_cache()  # of listings, which may be older than the file
                return int(self._files.size(self._path(name)))
        except RemoteError as error:
            if error.cause != "missing":
                raise
            return None

    def state(self, name: str) -> tuple[int, str]:
        """Return the size of a file, and its ETag or time of change; "" if neither is known."""
        with self._explained(name):
            if self.is_web:
                return _result(self._files, _web_state(self._files, self._path(name)))
            self._files.invalidate_cache()
            about = self._files.info(self._path(name))
            return int(about["size"]), next((str(about[k]) for k in _PROOFS if about.get(k)), "")

    def send(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file atomically: as `NAME.part`, whose size is checked, then renamed."""
        path, part, sent = self._path(name), self._path(f"{name}.part"), 0
        try:
            with self._explained(name):
                self._files.makedirs(self._root, exist_ok=True)
                stream = self._files.open(part, "wb")
            try:
                for block in blocks:
                    with self._explained(name):
                        stream.write(block)
                    sent += len(block)
                with self._explained(name):
                    stream.flush()
                    # Of a local file; other back ends store it when it is closed.
                    with suppress(AttributeError, io.UnsupportedOperation):
                        os.fsync(stream.fileno())
                    stream.close()
            except BaseException:
                with suppress(Exception):
                    stream.close()
                raise
            # Shows an upload that a back end cut off without an error.
            arrived = self.size(f"{name}.part")
            with self._explained(name):
                if arrived != sent:
                    raise RemoteError(f"{sent:,} bytes were sent, {arrived} arrived", "transient")
                self._files.mv(part, path)
        except BaseException:
            with suppress(Exception):
                self._files.rm_file(part)
            raise

    def _path(self, name: str) -> str:
        if self._query is None:
            return f"{self._root}/{name}"
        return f"{self._root}/{quote(name)}{self._query}"

    @contextmanager
    def _explained(self, name: str) -> Generator[None]:
        """Translate errors of back ends, which have no common base class, into named errors."""
        where = f"{self.shown}/{name}"
        try:
            yield
        except RemoteError as error:
            error.args = (f"{where}: {error}",)
            raise
        except FileNotFoundError as error:
            raise RemoteError(f"{where} does not exist", "missing") from error
        except TimeoutError as error:  # its text may contain a signed URL
            raise RemoteError(f"{where}: timed out", "transient") from error
        except Exception as error:
            text = " ".join(str(error).split())
            if self._query:
                text = text.replace(self._query, "")
            text = f"{where}: {type(error).__name__}{': ' if text else ''}{text[:200]}"
            if isinstance(error, _REFUSED):
                raise RemoteError(f"{text}; check the URL and its permissions") from error
            if isinstance(error, OSError) and error.errno in _LASTING:
                raise RemoteError(f"{text}; free some space there, or push elsewhere") from error
            raise RemoteError(text, "transient") from error


class _Enough(Exception):
    """The receiver of a file needs no more bytes of it."""


class _Sink(io.RawIOBase):
    """The file-like object to which fsspec copies a file."""

    def __init__(self, write: Callable[[bytes], bool]) -> None:
        self._write = write
        self.error: BaseException | None = None

    def write(self, block: bytes) -> int:  # type: ignore[override]
        # Called by the event loop, which an interrupt from a progress bar would end.
        try:
            goes_on = not block or self._write(block)
        except BaseException as error:
            self.error, goes_on = error, False
        if not goes_on:
            raise _Enough
        return len(block)


def _result(files: Any, request: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a request on the loop of a file system; an interrupt cancels it."""
    future = asyncio.run_coroutine_threadsafe(request, files.loop)
    try:
        return future.result()
    finally:
        if not future.done():
            future.cancel()
            # A process that exits before the loop has cancelled it leaks connections.
            with suppress(TimeoutError):
                settled = asyncio.run_coroutine_threadsafe(asyncio.sleep(_CANCELLING), files.loop)
                settled.result(_SETTLED_AT_LATEST)


async def _web_state(files: Any, path: str) -> tuple[int, str]:
    """Return size and ETag from the answer for one byte: signed URLs allow no HEAD."""
    session = await files.set_session()
    async with session.get(path, headers={"Range": "bytes=0-0"}) as answer:
        size = answer.headers["Content-Range"].rpartition("/")[2]
        return int(size), answer.headers.get("ETag") or answer.headers.get("Last-Modified", "")


def read_spans(
    remote: Remote, name: str, spans: Iterable[Span], together: int, log: Callable[[str], None]
) -> Iterator[tuple[Span, bytes]]:
    """Yield byte ranges, requested at most `together` bytes at a time; errors are retried."""
    waiting, backoff = [*spans], Backoff(log)
    while waiting:
        sizes = accumulate(stop - start for start, stop in waiting[:_MOST_TOGETHER])
        now = max(1, bisect([*sizes], together))
        some, waiting, error = waiting[:now], waiting[now:], None
        for span, data in zip(some, remote.read_spans(name, some), strict=True):
            if isinstance(data, RemoteError):
                waiting.append(span)
                error = data
                continue
            yield span, data
            backoff.progressed()
        # One wait for all: they were requested together.
        if error:
            backoff.failed(error)


def read_bounded(remote: Remote, name: str, most: int, log: Callable[[str], None]) -> bytes | None:
    """Return the at most `most` bytes of a small file; None if it does not exist."""

    def read() -> bytes:
        data = bytearray()

        def add(block: bytes) -> bool:
            data.extend(block)
            return len(data) <= most

        remote.read(name, add)
        if len(data) > most:
            raise RemoteError(
                f"{remote.shown}/{name} has more than {most:,} bytes, too many for a "
                "description of a feature set; check the URL"
            )
        return bytes(data)

    try:
        return retry(read, log)
    except RemoteError as error:
        if error.cause != "missing":
            raise
        return None
