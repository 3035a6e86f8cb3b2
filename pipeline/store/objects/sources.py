"""Source files behind URLs: their bytes, sizes and versions.

Members of a tar file and row groups of a Parquet file are read in their order, by several threads.
The last blocks of such files are therefore kept, and a request for a large block serves many
images. File systems are opened in the process that reads, since their threads survive no fork.
"""

import errno
import io
import os
import re
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar
from urllib.parse import unquote

from pipeline.store.errors import FileReadError
from pipeline.store.objects.facts import Facts
from pipeline.store.objects.locate import opened
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import RemoteError, retry
from pipeline.store.wording import without_secrets

BLOCK_BYTES = 1 << 23
_BLOCKS_KEPT = 8
# Of an object that is being read: a change is noticed after so many seconds.
_SECONDS_BETWEEN_FACTS = 2.0
_FACTS_KEPT = 64
# From so many objects of a folder on, it is listed once.
_LISTED_FROM = 16
_CONNECTIONS = 8
_SECRET = re.compile(r"[^:]+://[^/]*:[^/]*@|https?://[^?]*\?", re.IGNORECASE)

T = TypeVar("T")


class _Shared(Generic[T]):
    """The last answers to slow requests; threads that need the same one wait for it."""

    def __init__(self, most: int) -> None:
        self._lock, self._most = threading.Lock(), most
        self._answers: OrderedDict[Hashable, Future[T]] = OrderedDict()

    def get(self, key: Hashable, request: Callable[[], T]) -> T:
        with self._lock:
            known = self._answers.get(key)
            answer: Future[T] = known or Future()
            self._answers[key] = answer
            self._answers.move_to_end(key)
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)
        if known is None:
            try:
                answer.set_result(request())
            except BaseException as error:
                with self._lock:
                    self._answers.pop(key, None)
                answer.set_exception(error)
        return answer.result()

    def clear(self) -> None:
        with self._lock:
            self._answers.clear()


_blocks: _Shared[bytes]
_facts: _Shared[Facts]


def _begin() -> None:
    """Forget what is known, and the locks that threads of a parent process may hold."""
    global _blocks, _facts
    _blocks, _facts = _Shared(_BLOCKS_KEPT), _Shared(_FACTS_KEPT)


_begin()
os.register_at_fork(after_in_child=_begin)


def facts(url: str) -> Facts:
    """Return size and version of an object, at most some seconds old.

    As all functions here, it raises FileNotFoundError for a missing object, and FileReadError if
    the store fails, also after retries.
    """
    return _facts.get((url, _now()), lambda: _answer(url, Remote.facts))


def facts_of(urls: Iterable[str]) -> dict[str, Facts]:
    """Return size and version of those objects that exist, as they are now."""
    _facts.clear()
    by_folder: dict[str, list[str]] = defaultdict(list)
    for url in dict.fromkeys(urls):
        by_folder[_split(url)[0]].append(url)
    known: dict[str, Facts] = {}
    with ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="facts") as pool:
        for folder, of_folder in by_folder.items():
            if len(of_folder) < _LISTED_FROM or _is_web(folder):
                one_by_one = zip(of_folder, pool.map(_fact, of_folder), strict=True)
                known |= {url: fact for url, fact in one_by_one if fact is not None}
            else:
                listed = listing(folder, deep=False)
                known |= {u: listed[name] for u in of_folder if (name := _split(u)[1]) in listed}
    return known


def listing(folder: str, deep: bool = True) -> dict[str, Facts]:
    """Return the objects below a URL, or of this folder alone, by their names there."""
    try:
        return _answer(f"{folder}/", lambda remote, _: remote.listing(deep))
    except FileNotFoundError:
        return {}


def exists(url: str) -> bool:
    """Return whether there is an object or a folder; a folder of a web server is not asked for."""
    try:
        return _answer(f"{url}/", lambda remote, _: remote.exists())
    except FileNotFoundError:
        return False


def whole(url: str, most: int) -> bytes:
    """Return the bytes of an object in one request; of a longer one, the first `most`."""
    return _answer(url, lambda remote, name: remote.beginning(name, most))


def part(url: str, start: int, stop: int) -> bytes:
    """Return a range of bytes from shared blocks, shorter if the object ends before."""
    return _part(url, facts(url), start, stop)


def open_object(url: str) -> io.BufferedReader:
    """Open an object for reading and seeking, by shared blocks."""
    return io.BufferedReader(_Stream(url), 1 << 16)


class _Stream(io.RawIOBase):
    """An object as a file."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        if (known := facts_of([url]).get(url)) is None:
            raise _missing(url)
        self._facts = known

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: self._facts.size}[whence]
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = _part(self._url, self._facts, self._at, self._at + len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _part(url: str, known: Facts, start: int, stop: int) -> bytes:
    stop = min(stop, known.size)
    blocks = []
    for first in range(start - start % BLOCK_BYTES, stop, BLOCK_BYTES):
        block = _block(url, known, first)
        blocks.append(block[max(0, start - first) : stop - first])
    return b"".join(blocks)


def _block(url: str, known: Facts, first: int) -> bytes:
    span = first, min(first + BLOCK_BYTES, known.size)

    def request(remote: Remote, name: str) -> bytes:
        (block,) = remote.read_spans(name, [span])
        if isinstance(block, RemoteError):
            raise block
        return block

    # What has no version may be another object soon.
    version = known if known.version else _now()
    return _blocks.get((url, version, first), lambda: _answer(url, request))


def _fact(url: str) -> Facts | None:
    try:
        return _answer(url, Remote.facts)
    except FileNotFoundError:
        return None


def _answer(url: str, request: Callable[[Remote, str], T]) -> T:
    """Return the answer of a store on an object, after retries if need be."""
    folder, name = _split(url)
    try:
        remote = opened(folder)
        return retry(lambda: request(remote, name), lambda line: None)
    except RemoteError as error:
        if error.cause == "missing":
            raise _missing(url) from error
        raise FileReadError(str(error)) from error


def _missing(url: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such object", without_secrets(url))


def _split(url: str) -> tuple[str, str]:
    """Return the URL of an object's folder, and its name there."""
    if _SECRET.match(url):
        raise FileReadError(
            f"{without_secrets(url)} is given with a password or a signature, which datasets and "
            "messages would show; put credentials where the back end reads them: in the "
            "environment, or in files of its own"
        )
    folder, _, name = url.rpartition("/")
    return folder, unquote(name) if _is_web(url) else name


def _is_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _now() -> int:
    return int(time.monotonic() / _SECONDS_BETWEEN_FACTS)
