"""Snapshot of the files of a finished call, so that repeating it returns at once.

Whether an output is current can take minutes to find, since every source of a row is read. Once a
call has found all of its outputs current, a SHA-256 of its record and of the identities of all
files, inputs and outputs, is stored in the work folder. While it matches, the same call reads none
of them, nor imports the packages that would.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pipeline
from pipeline.datasets.manifest import DATASET_FILE, MANIFEST_FILE, REGIONS_FILE
from pipeline.store.builder.locking import (
    WORK_FOLDER,
    make_work_folder,
    work_file,
    work_folders,
)
from pipeline.store.current.record import Record
from pipeline.store.files import write_json
from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.inner_files import outer_file
from pipeline.store.objects.urls import url_of
from pipeline.store.schema import decode
from pipeline.store.shards.index import INDEX_FILE, read_index

Identities = npt.NDArray[np.int64]

# A file changed this recently may change again without a new time stamp.
_SETTLED_NS = 2_000_000_000
# File systems with change times and inodes from the local kernel, which users cannot set, unlike
# modification times, and which no network cache delays.
_KERNEL_TIMES = {"bcachefs", "btrfs", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
# In place of the device, of objects whose version follows from their bytes.
BY_BYTES = -2
_OF_UNFINISHED = (".old", ".superseded", ".writer")


@dataclass(frozen=True, kw_only=True)
class _Stored:
    state: str
    outputs: tuple[str, ...]
    result: Any


class Snapshot:
    """State of the inputs of a call, and the snapshot of the last one that found all current.

    Files are compared by size, modification and change time, inode and device; the files of the
    dataset by their bytes.
    """

    def __init__(
        self, file: Path, record: Record, dataset: Path, files: Iterable[str | Path] = ()
    ) -> None:
        """Store the state of all inputs before any is read: `files`, and those the record names."""
        self._file = file
        # Read first: an input that changes during the call makes the snapshot stale.
        self._inputs = _state_of_inputs(record, dataset, files)

    def result(self) -> Any:
        """Return the result of the last call, as JSON values; None if anything may have changed."""
        try:
            stored = decode(self._file.read_bytes(), _Stored)
        except (OSError, ValueError):
            return None
        same = stored.state == self._state(stored.outputs, stored.result)
        return stored.result if same else None

    def write(self, outputs: Iterable[Path], result: Any) -> None:
        """Store that the outputs are current, unless a file may still change or a row failed."""
        if url_of(self._file) is not None:  # outputs in a store are compared there
            return
        texts = [str(path) for path in outputs]
        # Only an optimisation: errors, for example on a full disk, are ignored, as are paths that
        # are not UTF-8, which JSON cannot hold.
        with suppress(OSError, UnicodeEncodeError):
            # The sources of failed rows are read again on every call.
            failed = any(map(_has_failed_rows, map(Path, texts)))
            if failed or (state := self._state(texts, result)) is None:
                self._file.unlink(missing_ok=True)
            else:
                stored = {"state": state, "outputs": texts, "result": result}
                make_work_folder(self._file.parent)
                write_json(self._file, stored)

    def _state(self, outputs: Iterable[str], result: Any) -> str | None:
        """Return a digest of inputs, outputs and result; None if a file is unreliable."""
        states = [_state_of_output(Path(out)) for out in outputs]
        if self._inputs is None or None in states:
            return None
        # The result is part of the state: an edited one is not returned.
        return sha256_of_json([self._inputs, states, result])


def snapshot_file(out: Path) -> Path:
    """Return the file of the snapshot of an output."""
    return work_file(out, ".finished")


def file_identities(paths: Iterable[str | Path]) -> Identities:
    """Return size, times (ns), inode and device of each file, (paths, 5); -1 if missing.

    An image inside of another file has those of the outer file. What is behind a URL has its size,
    its version in place of the modification time, and no other time; its device is `BY_BYTES` if
    other bytes have another version for certain.
    """
    rows: list[tuple[int, ...]] = []
    last = url = None
    rows_of: dict[str, list[int]] = {}  # of URLs
    for path in paths:
        # Consecutive rows may share a file, which costs one stat.
        if (file := outer_file(path)) != last:
            url = url_of(file)
            try:
                status = os.stat(file)  # noqa: PTH116 - a million of them
            except (OSError, ValueError):
                row: tuple[int, ...] = (-1,) * 5
            else:
                times = status.st_mtime_ns, status.st_ctime_ns
                row = status.st_size, *times, status.st_ino, status.st_dev
            last = file
        if url is not None:
            rows_of.setdefault(url, []).append(len(rows))
        rows.append(row)
    identities = np.array(rows, np.int64).reshape(-1, 5)
    if rows_of:
        # Imported for URLs alone, as in `inner_files`.
        from pipeline.store.objects.sources import facts_of

        for url, known in facts_of(rows_of).items():
            # Without a version, as of a missing file: nothing shows that it is unchanged.
            if known.version:
                device = BY_BYTES if known.by_bytes else 0
                identities[rows_of[url]] = known.size, known.stamp, 0, 0, device
    return identities


def _state_of_inputs(record: Record, dataset: Path, files: Iterable[str | Path]) -> Any:
    """Return everything that decides the result of a call as JSON values; None if unreliable."""
    # None if a file is missing, may still be changing, or is on a file system whose times cannot be
    # relied on. The time is read first: a file that changes after its stat has a later one.
    before = time.time_ns()
    identities = np.concatenate([file_identities(files), file_identities(_named_files(record))])
    sizes, changed = identities[:, 0], identities[:, 2]
    settled = ((sizes >= 0) & (changed < before - _SETTLED_NS)).all()
    devices = {*np.unique(identities[:, 4]).tolist()}
    if not settled or not devices <= _devices_with_times():
        return None
    read = hashlib.sha256(identities.tobytes()).hexdigest()
    described = (dataset / name for name in (DATASET_FILE, MANIFEST_FILE, REGIONS_FILE))
    digests = [sha256_of_file(file) if file.is_file() else None for file in described]
    return [record, digests, read, _software()]


def _named_files(value: Any) -> Iterator[Path]:
    """Yield the files and folders named in JSON values, and what is in a folder named by a path."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list):
        for part in value:
            yield from _named_files(part)
    elif isinstance(value, str):
        # A single word, such as a split, may by chance be the name of a large folder of images: its
        # contents are not looked at. "sentence-transformer:PATH" names a path.
        for text, is_path in ((value, os.sep in value), (value.partition(":")[2], True)):
            with suppress(OSError, ValueError):  # longer than a file name may be, or with a NUL
                if text and (path := Path(text)).exists():
                    yield from (path, *(sorted(path.rglob("*")) if is_path else ()))


def _state_of_output(out: Path) -> Any:
    """Return names and identities of an output's files; None if it is missing or unfinished."""
    folder = out.resolve()
    work = folder.parent / WORK_FOLDER
    unfinished = [work / f"{folder.name}{suffix}" for suffix in _OF_UNFINISHED]
    if not out.exists() or any(path.exists() for path in unfinished):
        return None
    if work.is_dir() and work_folders(folder):
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file()) or [folder]
    names = [str(file.relative_to(folder)) for file in files]
    return [names, file_identities(files).tolist()]


def _has_failed_rows(out: Path) -> bool:
    return (out / INDEX_FILE).is_file() and read_index(out).failed_rows > 0


@cache
def _devices_with_times() -> frozenset[int]:
    """Return the devices of the mounted file systems of `_KERNEL_TIMES`."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    devices = set()
    for line in lines:
        mount, _, system = line.partition(" - ")
        if system.split()[0] in _KERNEL_TIMES:
            major, _, minor = mount.split()[2].partition(":")
            devices.add(os.makedev(int(major), int(minor)))
    return frozenset(devices | {BY_BYTES})


@cache
def _software() -> str:
    """Return a digest of the versions of Python and all packages, and of this package's code."""
    folders = [folder for folder in map(Path, sys.path) if folder.is_dir()]
    packages = [sorted(path.name for path in folder.glob("*.dist-info")) for folder in folders]
    package = Path(pipeline.__file__).parent
    stats = [path.stat() for path in sorted(package.rglob("*.py"))]
    code = [[stat.st_size, stat.st_mtime_ns] for stat in stats]
    return sha256_of_json([sys.version, packages, code])
