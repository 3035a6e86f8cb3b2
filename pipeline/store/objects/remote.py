"""A folder on an fsspec file system: resumed reads, concurrent range reads and atomic writes."""

import asyncio
import errno
import io
import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipeline.store.objects.facts import Facts
from pipeline.store.objects.retry import RemoteError

_BLOCK = 1 << 20
_MOST_TOGETHER = 128
_EXISTS = ("PreconditionFailed", "pre-condition", "precondition", "RequestConflict", "412")
_LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
# Stores in which an object appears whole and replaces an older one at once.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory"}
_REFUSED = (PermissionError, NotImplementedError, IsADirectoryError, NotADirectoryError, ValueError)
# Seconds for the event loop to cancel requests, and the longest wait for it.
_CANCELLING, _SETTLED_AT_LATEST = 0.02, 1.0

Span = tuple[int, int]
"""Start and stop of a byte range."""


class Remote:
    """A folder on an fsspec file system."""

    def __init__(self, files: Any, root: str, shown: str, query: str | None = None) -> None:
        self._files, self._root, self._query = files, root, query
        self.shown: str = shown  # for messages: without user, password and query
        # "" or "?..." for HTTP(S), which is read-only.
        self.is_web: bool = query is not None

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self._root.rpartition("/")[2]

    def sibling(self, suffix: str) -> "Remote":
        """Return the folder with a suffix appended to its name."""
        return Remote(self._files, self._root + suffix, self.shown + suffix, self._query)

    def in_parent(self, *names: str) -> "Remote":
        """Return a folder in the parent of this one; raise at the top of a bucket."""
        parent, slash, _ = self._root.rpartition("/")
        if not slash:
            raise RemoteError(f"{self.shown} is a whole bucket; name a folder in it")
        shown = "/".join([self.shown.rpartition("/")[0], *names])
        return Remote(self._files, "/".join([parent, *names]), shown, self._query)

    def files(self) -> "dict[str, Facts]":
        """Return what `listing` does of all files below the folder; {} if it does not exist."""
        try:
            return self.listing(deep=True)
        except RemoteError as error:
            if error.cause != "missing":
                raise
            return {}

    def put(self, name: str, data: bytes | Path) -> None:
        """Write a file atomically, from bytes or from a local file."""
        if not self._stores_objects:
            self.send(name, _blocks(data) if isinstance(data, Path) else [data])
        elif isinstance(data, Path):
            with self._explained(name):
                self._files.put_file(os.fspath(data), self._path(name))
        else:
            with self._explained(name):
                self._files.pipe_file(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists; return whether it was written.

        In a store with conditional writes, one of several writers at once succeeds.
        """
        with self._explained(name):
            try:
                if self._stores_objects:
                    self._files.pipe_file(self._path(name), data, mode="create")
                else:
                    self._files.makedirs(self._root, exist_ok=True)
                    with self._files.open(self._path(name), "xb") as stream:
                        stream.write(data)
            except FileExistsError:
                return False
            except Exception as error:
                # s3fs and others raise what their store answers: 409, 412 or 304.
                if not any(word in str(error) for word in _EXISTS):
                    raise
                return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        try:
            with self._explained(name):
                self._files.rm_file(self._path(name))
        except RemoteError as error:
            if error.cause != "missing":
                raise

    def remove_all(self) -> None:
        """Remove the folder, if it exists."""
        try:
            with self._explained(""):
                self._files.rm(self._root, recursive=True)
        except RemoteError as error:
            if error.cause != "missing":
                raise

    @property
    def _stores_objects(self) -> bool:
        protocols = self._files.protocol
        named = {protocols} if isinstance(protocols, str) else {*protocols}
        return bool(named & _OBJECT_STORES)

    def read(self, name: str, write: Callable[[bytes], bool], start: int = 0) -> None:
        """Pass the bytes of a file from `start` to `write`, until it returns False."""
        sink = _Sink(write)
        with self._explained(name), suppress(_Enough):
            if self.is_web:
                headers = {"Range": f"bytes={start}-"} if start else {}
                path, files = self._path(name), self._files
                _result(files, files._get_file(path, sink, chunk_size=_BLOCK, headers=headers))
            else:
                self._files.invalidate_cache()  # of listings, which may have an older ETag
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

    def beginning(self, name: str, most: int) -> bytes:
        """Return the first `most` bytes of a file, or all of a shorter one, in one request."""
        if self.is_web:
            data = bytearray()

            def add(block: bytes) -> bool:
                data.extend(block)
                return len(data) < most

            self.read(name, add)
            return bytes(data[:most])
        path = self._path(name)
        with self._explained(name):
            try:
                return bytes(self._files.cat_file(path, start=0, end=most))
            except FileNotFoundError:
                raise
            except Exception:
                # Stores refuse every range of an empty file.
                if self._files.size(path) == 0:
                    return b""
                raise

    def facts(self, name: str) -> Facts:
        """Return what the store states of a file now."""
        with self._explained(name):
            self._files.invalidate_cache()  # of listings, which may be older than the file
            try:
                return Facts.of(self._files.info(self._path(name)))
            except FileNotFoundError as error:
                # fsspec reports any failure of a web server as a missing file.
                if self.is_web and error.__cause__ is not None:
                    raise error.__cause__ from None
                raise

    def listing(self, deep: bool) -> dict[str, Facts]:
        """Return the files in this folder, and if `deep` in all below, by their relative names."""
        if self.is_web:
            raise RemoteError(f"{self.shown}: a web server does not list its files; name them")
        files: dict[str, Facts] = {}
        with self._explained(""):
            self._files.invalidate_cache()
            # Not `find`, which leaves out folders that it cannot read.
            waiting = [self._root]
            while waiting:
                folder = waiting.pop()
                for info in self._files.ls(folder, detail=True):
                    name, is_folder = str(info["name"]), info["type"] == "directory"
                    # Some stores have an empty object for a folder.
                    if name.rstrip("/") == folder or (name.endswith("/") and not is_folder):
                        continue
                    if not is_folder:
                        files[name.removeprefix(self._root).lstrip("/")] = Facts.of(info)
                    elif deep:
                        waiting.append(name.rstrip("/"))
        return files

    def exists(self) -> bool:
        """Return whether there is a file or a folder here; of a web server it is assumed."""
        with self._explained(""):
            self._files.invalidate_cache()
            return self.is_web or bool(self._files.info(self._root))

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
        if not self.is_web:
            return self.facts(name)[:2]
        with self._explained(name):
            state: tuple[int, str] = _result(self._files, _web_state(self._files, self._path(name)))
            return state

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
            # Back ends have exceptions of their own for credentials that nobody has given.
            if isinstance(error, _REFUSED) or "Credentials" in type(error).__name__:
                raise RemoteError(f"{text}; check the URL, permissions and credentials") from error
            if isinstance(error, OSError) and error.errno in _LASTING:
                raise RemoteError(f"{text}; free some space there, or push elsewhere") from error
            raise RemoteError(text, "transient") from error


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            yield block


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
