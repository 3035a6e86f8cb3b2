"""A local or fsspec folder: range reads and atomic writes."""

import asyncio
import errno
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import as_completed
from contextlib import closing, contextmanager, suppress
from functools import partial
from io import UnsupportedOperation
from typing import Any
from urllib.parse import quote

from pipeline.store.share.retry import RemoteError, retry

_BLOCK = 1 << 20
_LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_REFUSED = (PermissionError, NotImplementedError, IsADirectoryError, NotADirectoryError, ValueError)

Span = tuple[int, int]
"""Start and stop of a byte range."""


class Remote:
    """A folder on an fsspec file system."""

    def __init__(
        self,
        files: Any,
        root: str,
        shown: str,
        query: str | None = None,
        open_stream: Callable[[str, int], Any] | None = None,
    ) -> None:
        self._files, self._root, self._query = files, root, query
        self.shown: str = shown  # for messages: without user, password and query
        self._open_stream = open_stream
        # "" or "?..." for HTTP(S), which is read-only.
        self.is_web: bool = query is not None

    def sibling(self, suffix: str) -> "Remote":
        """Return the folder with a suffix appended to its name."""
        root, shown = self._root + suffix, self.shown + suffix
        return Remote(self._files, root, shown, self._query, self._open_stream)

    def read(self, name: str, start: int = 0) -> Generator[bytes]:
        """Yield the bytes of a file from `start`; its length is unbounded, so the caller stops."""
        with self._explained(name):
            stream = self._open(name, start)
        try:
            while True:
                with self._explained(name):
                    block = stream.read(_BLOCK)
                if not block:
                    return
                yield block
        finally:
            with suppress(Exception):
                stream.close()

    def read_spans(
        self, name: str, spans: Sequence[Span]
    ) -> Generator[tuple[Span, bytes | RemoteError]]:
        """Request byte ranges concurrently; yield each with its bytes or error, as it arrives."""
        path, files = self._path(name), self._files
        if not files.async_impl:
            for start, stop in spans:
                yield self._part(name, (start, stop), partial(files.cat_file, path, start, stop))
            return
        futures = {
            asyncio.run_coroutine_threadsafe(
                files._cat_file(path, start=start, end=stop), files.loop
            ): (start, stop)
            for start, stop in spans
        }
        try:
            for future in as_completed(futures):
                yield self._part(name, futures[future], future.result)
        finally:  # an interrupt or an error cancels the other requests
            for future in futures:
                future.cancel()

    def _part(
        self, name: str, span: Span, read: Callable[[], bytes]
    ) -> tuple[Span, bytes | RemoteError]:
        try:
            with self._explained(name):
                data = read()
                if len(data) != span[1] - span[0]:
                    ended = f"the file ended at byte {span[0] + len(data):,}"
                    raise RemoteError(ended, "transient")
            return span, data
        except RemoteError as error:
            if error.cause != "transient":
                raise
            return span, error

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
                    _sync(stream)
                    stream.close()  # buffering back ends send the rest here
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

    def _open(self, name: str, start: int) -> Any:
        if self._open_stream is not None:
            return self._open_stream(self._path(name), start)
        stream = self._files.open(self._path(name), "rb")
        stream.seek(start)
        return stream

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


def read_bounded(remote: Remote, name: str, most: int, log: Callable[[str], None]) -> bytes | None:
    """Return the at most `most` bytes of a small file; None if it does not exist."""

    def read() -> bytes:
        data = bytearray()
        with closing(remote.read(name)) as blocks:
            for block in blocks:
                data += block
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


def _sync(stream: Any) -> None:
    """Flush a local file to disk; other back ends do so themselves."""
    stream.flush()
    with suppress(AttributeError, UnsupportedOperation):
        os.fsync(stream.fileno())
