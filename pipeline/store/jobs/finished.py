"""Record of a finished call, so that repeating it returns at once.

A feature set and the models fitted for it depend on options, files and software. Once a call has
found every row up to date, a SHA-256 of all of these is stored in the work folder next to the set.
While it matches, the same call neither tokenizes captions nor reads shards or images; otherwise
everything is checked in full.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pipeline
from pipeline.datasets.manifest import DATASET_FILE, MANIFEST_FILE, REGIONS_FILE
from pipeline.store.builder.locking import WORK_FOLDER, work_folders
from pipeline.store.files import write_json
from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.jobs.make_features import rate_line, size_line
from pipeline.store.progress import Monitor, Stopwatch
from pipeline.store.schema import decode
from pipeline.store.shards.index import FeatureIndex, read_index
from pipeline.store.workers.place import Place

Identities = npt.NDArray[np.int64]

# A file changed this recently may change again without a new time stamp.
_SETTLED_NS = 2_000_000_000
# File systems with change times and inodes from the local kernel, which users cannot set, unlike
# modification times, and which no network cache delays.
_KERNEL_TIMES = {"bcachefs", "btrfs", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
_OF_UNFINISHED = (".old", ".superseded", ".writer")


@dataclass(frozen=True, kw_only=True)
class _Stored:
    state: str
    notes: tuple[str, ...]


class FinishedRecord:
    """State of inputs and outputs at the last call that found its feature set finished.

    Files are compared by size, modification and change time, inode and device; the files of the
    dataset by their bytes.
    """

    def __init__(
        self,
        out: Path,
        call: Any,
        dataset: Path,
        files: Iterable[str | Path],
        folders: Sequence[Path] = (),
    ) -> None:
        """Record the state of all inputs, before any is read; `folders` are further outputs."""
        self._out, self._folders = out, [folder.resolve() for folder in (out, *folders)]
        self._path = finished_path(self._folders[0])
        self._inputs = state_of_inputs(call, dataset, files)

    def nothing_to_do(self, unit: str, place: Place, monitor: Monitor) -> FeatureIndex | None:
        """Return the index and write the usual log lines if the set is up to date, else None."""
        started = time.monotonic()
        if (notes := self._notes()) is None:
            return None
        index = self._index()
        monitor.log(size_line(index.header, index.rows, len(index.shards), index.rows))
        seconds = time.monotonic() - started
        monitor.log(rate_line(0, unit, seconds, index.failed_rows))
        for note in notes:
            monitor.log(note)
        place.write_summary(self._out, index.metadata, 0, seconds, Stopwatch())
        return index

    def write(self, notes: Sequence[str] = ()) -> None:
        """Record that the set is finished, unless its inputs may still be changing."""
        # Only an optimisation: errors, for example on a full disk, are ignored.
        with suppress(OSError):
            if (state := self._state()) is None or self._index().failed_rows:
                self._path.unlink(missing_ok=True)
            else:
                write_json(self._path, {"state": state, "notes": list(notes)})

    def _notes(self) -> tuple[str, ...] | None:
        """Return the stored notes; None if the record does not match the state."""
        try:
            record = decode(self._path.read_bytes(), _Stored)
        except (OSError, ValueError):
            return None
        return record.notes if record.state == self._state() else None

    def _index(self) -> FeatureIndex:
        return read_index(self._out)

    def _state(self) -> str | None:
        """Return a digest of inputs and outputs; None if either is unreliable."""
        if self._inputs is None:
            return None
        outputs = []
        for folder in self._folders:
            work = folder.parent / WORK_FOLDER
            unfinished = [work / f"{folder.name}{suffix}" for suffix in _OF_UNFINISHED]
            if not (folder.is_dir() and work.is_dir()) or work_folders(folder):
                return None
            if any(path.exists() for path in unfinished):
                return None
            files = sorted(path for path in folder.iterdir() if path.is_file())
            outputs.append([[file.name for file in files], file_identities(files).tolist()])
        return sha256_of_json([self._inputs, outputs])


def finished_path(out: Path) -> Path:
    """Return the file of the record of a feature set."""
    return out.parent / WORK_FOLDER / f"{out.name}.finished"


def state_of_inputs(call: Any, dataset: Path, files: Iterable[str | Path]) -> Any:
    """Return everything that decides the result of a call as JSON values; None if unreliable."""
    # None if a file is missing, may still be changing, or is on a file system whose times cannot be
    # relied on. The time is read first: a file that changes after its stat has a later one.
    before = time.time_ns()
    identities = file_identities(files)
    sizes, changed = identities[:, 0], identities[:, 2]
    settled = ((sizes >= 0) & (changed < before - _SETTLED_NS)).all()
    if not (settled and _keep_times(identities)):
        return None
    read = hashlib.sha256(identities.tobytes()).hexdigest()
    return [call, _dataset_sha256(dataset), read, _software()]


def file_identities(paths: Iterable[str | Path]) -> Identities:
    """Return size, times (ns), inode and device of each file, (paths, 5); -1 if missing."""
    rows: list[tuple[int, ...]] = []
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - a million of them
        except (OSError, ValueError):
            rows.append((-1,) * 5)
        else:
            times = status.st_mtime_ns, status.st_ctime_ns
            rows.append((status.st_size, *times, status.st_ino, status.st_dev))
    return np.array(rows, np.int64).reshape(-1, 5)


def _dataset_sha256(folder: Path) -> list[str | None]:
    files = (folder / name for name in (DATASET_FILE, MANIFEST_FILE, REGIONS_FILE))
    return [sha256_of_file(file) if file.is_file() else None for file in files]


def _keep_times(identities: Identities) -> bool:
    """Return whether all files are on file systems of `_KERNEL_TIMES`."""
    return {*np.unique(identities[:, 4]).tolist()} <= _devices_with_times()


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
    return frozenset(devices)


@cache
def _software() -> str:
    """Return a digest of the versions of Python and all packages, and of this package's code."""
    folders = [folder for folder in map(Path, sys.path) if folder.is_dir()]
    packages = [sorted(path.name for path in folder.glob("*.dist-info")) for folder in folders]
    package = Path(pipeline.__file__).parent
    stats = [path.stat() for path in sorted(package.rglob("*.py"))]
    code = [[stat.st_size, stat.st_mtime_ns] for stat in stats]
    return sha256_of_json([sys.version, packages, code])
