"""Files that are written atomically, which software made them, and what others may claim."""

import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import __version__
from pipeline.errors import PipelineError
from pipeline.schema import decode

if TYPE_CHECKING:
    import h5py

# What deflate makes of one byte at most is 1,032 bytes.
_UNPACKED = 2000
# Parts of a dataset that were never written take no room in a file; so much of them may be read.
_UNWRITTEN_BYTES = 1 << 24

_PART = re.compile(r"(.+)\.[0-9a-f]{12}\.part", re.DOTALL)


# By folder: the parts that dead writers had left in it. No name comes twice,
# so one list a process is enough; one a file would be slow in folders of many thousand files.
_leftovers: dict[Path, list[str]] = {}


class OutputError(PipelineError):
    """Results cannot be written where they were asked for."""


def require_folder(path: Path) -> None:
    """Check, before the work, that results can be put into a folder, there already or not.

    Raises
    ------
    OutputError
    """
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not existing.is_dir():
        raise OutputError(f"{existing} is a file, so {path} is no folder; give another output")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f"{existing} may not be written to; change that or give another output")


@contextmanager
def appearing_whole(path: Path) -> Iterator[Path]:
    """Give a fresh `*.part` path to write to, and move it to `path` once it is on the disk.

    The part's name is unique, so two writers of one file never mix; the last rename wins. A
    writer that fails leaves nothing; one that is killed leaves a `*.part` file, never a half
    file under the final name. A later process that writes `path` removes it, unless others are
    just writing into the folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part")
    with _writing_into(path.parent) as (folder, leftovers):
        for name in leftovers:
            if (found := _PART.fullmatch(name)) and found[1] == path.name:
                path.with_name(name).unlink(missing_ok=True)
        try:
            yield part
            with part.open("rb+") as stream:
                os.fsync(stream.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        os.fsync(folder)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8 with `\\n` line ends, whole or not at all."""
    with appearing_whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys and a final newline, whole or not at all."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, whatever it is; see `pipeline.schema.decode`.

    Raises
    ------
    SchemaError
    """
    return decode(text, Any)


def require_held(dataset: "h5py.Dataset") -> "h5py.Dataset":
    """Return an HDF5 dataset if its file can hold as much as it claims.

    Any other would be read as zeros, as many as it claims, until no memory is left.

    Raises
    ------
    ValueError
    """
    if not hasattr(dataset, "dtype"):
        raise ValueError(f"{dataset.name} is a group; a dataset was expected")
    claimed, held = (dataset.size or 0) * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if claimed > _UNPACKED * held + _UNWRITTEN_BYTES:
        raise ValueError(
            f"{dataset.name} claims {claimed:,} bytes, shape {dataset.shape}, and the file holds "
            f"{held:,} of them"
        )
    return dataset


@contextmanager
def _writing_into(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Give the descriptor of a folder and the parts that dead writers have left in it.

    Whoever writes shares a lock on the folder, which ends with its process. Who gets it alone
    knows that no process works on the parts found there.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        key = folder.absolute()
        with suppress(OSError):  # others are writing, or the file system has no locks
            if key not in _leftovers:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _leftovers[key] = [p.name for p in folder.iterdir() if _PART.fullmatch(p.name)]
        with suppress(OSError):  # without locks nobody gets it alone either
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor, _leftovers.get(key, [])
    finally:
        os.close(descriptor)


def created_by(*packages: str) -> str:
    """Return this package and the named installed packages with their versions."""
    return ", ".join(
        [f"caption-feature-pipeline {__version__}", *(f"{p} {version(p)}" for p in packages)]
    )
