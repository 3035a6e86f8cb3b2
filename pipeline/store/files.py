"""Atomic writes, software versions, and checks of claimed sizes."""

import errno
import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import __version__
from pipeline.store.errors import PipelineError, WrongUsage
from pipeline.store.objects.urls import url_of
from pipeline.store.schema import decode
from pipeline.store.wording import without_secrets

if TYPE_CHECKING:
    import h5py

# deflate expands one byte to at most 1,032.
_UNPACKED = 2000
# Unallocated parts of a dataset use no space in a file; read at most this much of them.
_UNWRITTEN_BYTES = 1 << 24

_PART = re.compile(r"(.+)\.[0-9a-f]{12}\.part", re.DOTALL)


# By folder: `*.part` files of dead writers. Names are never reused, so one listing per process is
# enough; one per file would be slow in folders with many thousands of files.
_leftovers: dict[Path, list[str]] = {}


# What separates folders or the cells of a table. 200 bytes leave room for seeds and suffixes.
_NOT_IN_NAMES, _MOST_BYTES = set("/\\|`"), 200


class OutputError(PipelineError):
    """Results cannot be written to the requested location."""


def file_name(name: str, of_model: bool = False) -> str:
    """Return the name of the file of an experiment, or of features `of_model`; raise if unusable.

    The "/" of a model's id, also behind an experiment's @, becomes "--".
    """
    own, at, images = name.partition("@")
    as_file = own.replace("/", "--") + at if of_model else own + at
    as_file += images.replace("/", "--")
    reason = ""
    if as_file != as_file.strip() or not as_file.isprintable() or as_file[:1] in ("", ".", "-"):
        reason = "begins with a dot, a dash or a blank, or has characters that are not printable"
    elif within := sorted(_NOT_IN_NAMES & {*as_file}):
        reason = f"has {within[0]}"
    elif len(as_file.encode()) > _MOST_BYTES:
        reason = f"is longer than {_MOST_BYTES} bytes"
    if reason:
        raise WrongUsage(
            f"the name {name!r} {reason}; it names files and rows of tables: choose another one"
        )
    return as_file


def require_folder(path: Path) -> None:
    """Raise, before the work, unless results can be written to an existing or new folder."""
    existing = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p))
    if not existing.is_dir():
        what = "a file" if existing.exists() else "a link that leads nowhere"
        raise OutputError(f"{existing} is {what}, so {path} cannot be a folder; choose another one")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f"{existing} is not writable; change that or choose another output")


def require_local(path: str | Path) -> None:
    """Raise for a URL: a folder called `s3:` would be made for it."""
    if (url := url_of(path)) is not None:
        raise OutputError(
            f"{without_secrets(url)} is a URL, expected a path on this machine; copy or mount an "
            "input; write an output to a folder, and send that with `pipeline shards push FOLDER "
            "URL`"
        )


@contextmanager
def appearing_whole(path: Path) -> Iterator[Path]:
    """Yield a new `*.part` path to write to; then flush it and rename it to `path` atomically.

    A failing writer leaves nothing, a killed one a `*.part` file: never an incomplete `path`. If
    `path` is a URL, the new file is a temporary one, which is then put there.
    """
    if url_of(path) is not None:
        # Imported for URLs alone.
        from pipeline.store.objects.mirror import sent_when_written

        with sent_when_written(path) as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # A unique name: concurrent writers never mix, and the last rename wins.
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part")
    with _writing_into(path.parent) as (folder, leftovers):
        for name in leftovers:
            if (match := _PART.fullmatch(name)) and match[1] == path.name:
                path.with_name(name).unlink(missing_ok=True)
        try:
            yield part
            # Before the rename: after a power failure, a file system may have the new name but not
            # yet the data.
            with part.open("rb+") as stream:
                os.fsync(stream.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        flush_entries(folder)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8 with `\\n` line ends."""
    with appearing_whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` atomically, as indented JSON with sorted keys and a final newline."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text of any type; otherwise raise `SchemaError`."""
    return decode(text, Any)


def require_held(dataset: "h5py.Dataset") -> "h5py.Dataset":
    """Return an HDF5 dataset; raise ValueError if it claims more bytes than its file can hold."""
    # HDF5 would return zeros of the claimed size, and exhaust the memory.
    if not hasattr(dataset, "dtype"):
        raise ValueError(f"{dataset.name} is a group, expected a dataset")
    claimed, stored = (dataset.size or 0) * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if claimed > _UNPACKED * stored + _UNWRITTEN_BYTES:
        raise ValueError(
            f"{dataset.name} claims {claimed:,} bytes, shape {dataset.shape}, but the file holds "
            f"{stored:,} of them"
        )
    return dataset


def flush_entries(folder: int) -> None:
    """Flush the entries of an open folder, which a flush of a file in it leaves out."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # of CIFS and FUSE, which cannot
            raise


@contextmanager
def _writing_into(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the descriptor of a folder and the parts that dead writers have left in it."""
    # Writers share a lock on the folder, which ends with their process. A process that obtains it
    # exclusively therefore knows that the parts it lists have no writer.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        key = folder.absolute()
        with suppress(OSError):  # others are writing, or the file system lacks locks
            if key not in _leftovers:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _leftovers[key] = [p.name for p in folder.iterdir() if _PART.fullmatch(p.name)]
        with suppress(OSError):  # without locks, nobody obtains it exclusively either
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor, _leftovers.get(key, [])
    finally:
        os.close(descriptor)


@cache
def created_by(*packages: str) -> str:
    """Return the versions of this package and the named installed packages."""
    return ", ".join(
        [f"caption-feature-pipeline {__version__}", *(f"{p} {version(p)}" for p in packages)]
    )
