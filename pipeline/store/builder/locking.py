"""Preconditions of writing an output: a writable folder on one disk, free space, a single writer.

Unfinished work is stored in a folder of its own in `.work`, next to the output. Only the holder of
the output's lock deletes anything there.
"""

import errno
import fcntl
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.store.files import OutputError, require_folder
from pipeline.store.shards.format import ShardError

WORK_FOLDER = ".work"


def require_output_folder(out: Path, work: Path) -> None:
    """Raise unless shards can be written to `out` and unfinished work to `work`."""
    if not out.name:
        raise OutputError(
            f"{out} is the root of the file system and cannot be an output; choose a subfolder"
        )
    require_folder(out)
    require_folder(work)
    above_out, above_work = (
        next(p for p in (folder, *folder.parents) if p.exists()) for folder in (out, work)
    )
    if above_out.stat().st_dev != above_work.stat().st_dev:
        raise ShardError(
            f"{out} and {work} are on different disks, so finished shards could not be renamed "
            f"from one to the other: choose a subfolder of {out} as output folder, or a folder on "
            f"the disk of {above_work}"
        )


def require_output_file(out: Path) -> None:
    """Raise unless a file can be written as `out`."""
    if out.is_dir():
        raise OutputError(f"{out.absolute()} is a folder; choose a file name")
    require_folder(out.parent)


def require_space(work: Path, rows: int, row_bytes: int) -> None:
    """Raise unless `rows` rows of `row_bytes` bytes fit on the disk of the work folder."""
    needed, free = rows * row_bytes, shutil.disk_usage(work).free
    if needed > free:
        # With the cause that a write to the full disk would have: callers distinguish it.
        raise ShardError(
            f"{rows} rows of {row_bytes} bytes need {needed / 1e6:.1f} MB in {work}, and "
            f"{free / 1e6:.1f} MB are free; free some space or choose another output folder"
        ) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def make_work_folder(folder: Path) -> None:
    """Create a folder of unfinished work, which git ignores."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (ignored := folder / ".gitignore").exists():
        ignored.write_text("*\n", encoding="utf-8")


def work_file(out: Path, suffix: str) -> Path:
    """Return the file of an output in the work folder next to it."""
    out = out.resolve()
    return out.parent / WORK_FOLDER / f"{out.name}{suffix}"


def work_folders(out: Path) -> list[Path]:
    """Return the work folders of an output, for all settings."""
    name = re.compile(re.escape(out.name) + "-[0-9a-f]{16}")
    return sorted(p for p in (out.parent / WORK_FOLDER).iterdir() if name.fullmatch(p.name))


def remove_leftovers(folder: Path, *patterns: str) -> None:
    """Remove leftovers of dead runs from a folder; requires the lock."""
    for pattern in patterns:
        for leftover in folder.glob(pattern):
            leftover.unlink(missing_ok=True)


def remove_if_empty(folder: Path) -> None:
    """Remove a work folder unless it holds any shard folder."""
    for empty in [*folder.glob("*/"), folder]:
        with suppress(OSError):  # not empty
            empty.rmdir()


@contextmanager
def only_writer(lock: Path, out: Path) -> Iterator[None]:
    """Hold the empty lock file `lock` as the only writer of `out`; its folder is created."""
    make_work_folder(lock.parent)
    # The kernel releases the lock with the process, even if killed. The file is never deleted: one
    # process could lock the deleted file, and another one a new file of that name.
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ShardError(
                f"another process is writing {out}; wait until it has ended, or choose another "
                "output folder"
            ) from error
        except OSError:  # a file system without locks
            with _only_creator(lock.with_suffix(".writer"), out):
                yield
        else:
            yield
    finally:
        os.close(descriptor)


@contextmanager
def _only_creator(path: Path, out: Path) -> Iterator[None]:
    """Hold a file that only one process can create; it stays if the process is killed."""
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(f"process {os.getpid()} on {socket.gethostname()}")
    except FileExistsError as error:
        raise ShardError(
            f"{path.read_text(encoding='utf-8')} is writing {out}, or was killed, which a file "
            f"system without locks cannot distinguish; if it is not running, delete {path} and "
            "rerun the command"
        ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
