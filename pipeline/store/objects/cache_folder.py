"""The folder of what was fetched from URLs: its place, its size, and how room is made in it."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from pipeline.store.errors import WrongUsage
from pipeline.store.objects.retry import RemoteError

FOLDER, LIMIT = "PIPELINE_CACHE", "PIPELINE_CACHE_SIZE"
"""Environment variables: the folder, and the most bytes in it."""

_DEFAULT_FOLDER, _DEFAULT_LIMIT = "~/.cache/caption-feature-pipeline/shards", "20 GB"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
SUFFIX = ".blocks"
"""Suffix of the files in the folder, which may be one that other programs use, too."""

# Room is made each time that a process has added this part of the limit, and for as much.
_PART = 64

_added = float("inf")


def cache_folder() -> Path:
    """Return the folder."""
    return Path(os.environ.get(FOLDER) or _DEFAULT_FOLDER).expanduser()


def cache_limit() -> int:
    """Return the most bytes of all files."""
    return _bytes_of(os.environ.get(LIMIT) or _DEFAULT_LIMIT)


@lru_cache
def _bytes_of(text: str) -> int:
    if (match := _SIZE.fullmatch(text.strip())) is None:
        raise WrongUsage(f"{LIMIT} is {text!r}; expected a size such as {_DEFAULT_LIMIT!r}")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))


def count_added(folder: Path, size: int) -> None:
    """Count bytes that were added to a folder, and make room in it from time to time."""
    global _added
    _added += size
    if _added * _PART > (limit := cache_limit()):
        _added = 0
        make_room(folder, limit - limit // _PART)


def make_room(folder: Path, most: int) -> None:
    """Remove the least recently used files beyond `most` bytes, but none that is locked."""
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_blocks * 512, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        with suppress(OSError):  # locked, or removed by another process
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                total -= size
            finally:
                os.close(descriptor)


@contextmanager
def writing_cache(folder: Path) -> Iterator[None]:
    """Explain why nothing can be written to the folder."""
    try:
        yield
    except OSError as error:
        raise RemoteError(
            f"{folder} cannot hold what is fetched from URLs ({error.strerror}); free some space "
            f"or lower {LIMIT}, or name a writable folder in {FOLDER}"
        ) from error
