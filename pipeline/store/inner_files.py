"""Files inside of files: a member of a tar file, or the bytes in a row of a Parquet file.

Their paths continue that of the outer file, so manifests and all readers of images use one kind of
path: `shard.tar/1536+20431/a.jpg` is 20,431 bytes from byte 1,536 on, called a.jpg in the tar file,
and `train.parquet/12@image/a.jpg` the value of the column `image` in row 12, from 0. Names of
columns are percent-encoded. The outer file, and a plain one, may be behind a URL.
"""

import io
import os
import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, unquote

from pipeline.store.objects.urls import url_of

_INNER = re.compile(
    r"(?P<tar>.*?\.tar)/(?P<start>\d{1,18})\+(?P<size>\d{1,18})/(?P<name>.+)"
    r"|(?P<parquet>.*?\.(?:parquet|pq))/(?P<row>\d{1,18})@(?P<column>[^/]+)/(?P<named>.+)",
    re.IGNORECASE | re.DOTALL,
)
# Row groups in memory: readers pass through a Parquet file in order, several at a time.
_GROUPS_KEPT = 2


class UnusablePart(Exception):
    """An outer file has no such part; the message is the reason of an unreadable image."""


class _Inner(NamedTuple):
    """A parsed path: `at` is start and size in a tar file, or row and column in a Parquet file."""

    outer: str
    at: tuple[int, int] | tuple[int, str]
    name: str


def in_tar(outer: str, start: int, size: int, name: str) -> str:
    """Return the path of a member of a tar file, from the path of the tar file."""
    return f"{outer}/{start}+{size}/{name}"


def in_parquet(outer: str, row: int, column: str, name: str) -> str:
    """Return the path of a row's value in a Parquet file, from the path of that file."""
    return f"{outer}/{row}@{quote(column, safe='')}/{name}"


def name_of(path: str) -> str:
    """Return the name inside of the outer file; any other path as it is."""
    inner = _parsed(path)
    return path if inner is None else inner.name


def unpacked_path(path: str) -> str:
    """Return the path that an image would have if each tar file were a folder of its name."""
    inner = _parsed(path)
    return path if inner is None else f"{inner.outer.rpartition('.')[0]}/{inner.name}"


def outer_file(path: str | Path) -> str:
    """Return the path of the file that has the bytes of a path: as a rule, the path itself."""
    text = os.fspath(path)
    inner = _parsed(text)
    return text if inner is None else inner.outer


def stated_size(path: str | Path) -> int:
    """Return the size of a member of a tar file in bytes; 0 for any other path."""
    inner = _parsed(os.fspath(path))
    return inner.at[1] if inner and isinstance(inner.at[1], int) else 0


def bytes_of(path: Path, most: int = 2**40) -> bytes:
    """Return the bytes of a file, inside of another or not; behind a URL, of a plain one `most`.

    Raises
    ------
    UnusablePart
        The outer file is damaged, or has no such part.
    OSError, ValueError
        As `Path.read_bytes`.
    FileReadError
        The store behind a URL fails, also after retries.
    """
    inner = _parsed(os.fspath(path))
    url = url_of(path if inner is None else inner.outer)
    if inner is None:
        return path.read_bytes() if url is None else _sources().whole(url, most)
    start, size = inner.at
    if isinstance(size, str):
        return _cell(inner.outer, start, size)
    if url is not None:
        data = _sources().part(url, start, start + size)
    else:
        with Path(inner.outer).open("rb") as stream:
            stream.seek(min(start, os.fstat(stream.fileno()).st_size))
            data = stream.read(size)
    if len(data) < size:
        raise UnusablePart(f"the tar file ends after {len(data)} of its {size} bytes")
    return data


def open_file(path: Path) -> BinaryIO:
    """Open a file to read and seek in its bytes, as `bytes_of` finds it."""
    if _parsed(os.fspath(path)) is not None:
        return io.BytesIO(bytes_of(path))
    return path.open("rb") if (url := url_of(path)) is None else _sources().open_object(url)


def _sources() -> Any:
    # Imported for URLs alone: it takes 0.05 s.
    from pipeline.store.objects import sources

    return sources


def _parsed(path: str) -> _Inner | None:
    # Most paths have neither sign, and there are millions.
    if "+" not in path and "@" not in path:
        return None
    if (match := _INNER.fullmatch(path)) is None:
        return None
    if match["tar"]:
        return _Inner(match["tar"], (int(match["start"]), int(match["size"])), match["name"])
    return _Inner(match["parquet"], (int(match["row"]), unquote(match["column"])), match["named"])


class _RowGroups:
    """The last row groups of a column that were read, shared by threads that read rows in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def value(self, outer: str, row: int, column: str) -> Any:
        """Return a value as Python has it; its row group is kept for the next rows."""
        import pyarrow.parquet

        state = _state_of(outer)
        starts = _starts_of_groups(outer, *state)
        number = bisect_right(starts, row) - 1
        if number >= len(starts) - 1:
            raise UnusablePart(f"the Parquet file has {starts[-1]} rows, so none is number {row}")
        key = outer, *state, column, number
        # Held while a group is read: other threads want rows of the same one.
        with self._lock:
            if key not in self._groups:
                file = pyarrow.parquet.ParquetFile(_for_arrow(outer))
                columns = file.read_row_group(number, columns=[column], use_threads=False)
                self._groups[key] = columns[column]
                if len(self._groups) > _GROUPS_KEPT:
                    self._groups.popitem(last=False)
            group = self._groups[key]
        return group[row - starts[number]].as_py()


_row_groups = _RowGroups()


@lru_cache(maxsize=256)
def _starts_of_groups(outer: str, size: int, changed: int) -> list[int]:
    """Return the first row of each row group of a Parquet file, and the number of its rows."""
    import pyarrow.parquet

    about = pyarrow.parquet.read_metadata(_for_arrow(outer))
    sizes = [about.row_group(number).num_rows for number in range(about.num_row_groups)]
    return [0, *accumulate(sizes)]


def _state_of(outer: str) -> tuple[int, int]:
    """Return size and time, or size and version, which differ after a change of the file."""
    if (url := url_of(outer)) is None:
        status = Path(outer).stat()
        return status.st_size, status.st_mtime_ns
    known = _sources().facts(url)
    return known.size, known.stamp


def _for_arrow(outer: str) -> str | BinaryIO:
    """Return what pyarrow opens: a path, or a stream of an object."""
    return outer if url_of(outer) is None else open_file(Path(outer))


def _cell(outer: str, row: int, column: str) -> bytes:
    """Return the bytes in a row of a Parquet file, or those in the struct of Hugging Face's."""
    # Imported here, as in the other functions: tar files do not need it, and it takes 0.2 s.
    import pyarrow

    try:
        value = _row_groups.value(outer, row, column)
    except (pyarrow.ArrowException, KeyError) as error:
        raise UnusablePart(f"the Parquet file is damaged, or another one ({error})") from error
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise UnusablePart(f"row {row} has no bytes in its column {column!r}")
    return data
