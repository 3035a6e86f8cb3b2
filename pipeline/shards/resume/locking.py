"""What must hold before an output is written: a place for it, one disk, room, and one writer.

Unfinished work on an output lies in a folder of its own within `.work`, beside the output. Only
the holder of the output's lock removes anything there.
"""

import fcntl
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.files import OutputError, require_folder
from pipeline.shards.format import ShardError

WORK_FOLDER = ".work"


class NoRoom(ShardError):
    """Rows do not fit on the disk."""


def require_output_folder(out: Path, work: Path) -> None:
    """Check that shards can be put into `out`, and unfinished work into `work`.

    Raises
    ------
    OutputError
        `out` is the root of the file system, or one of them is no folder to write to.
    ShardError
        They are on two disks: nothing is renamed from one to another.
    """
    if not out.name:
        raise OutputError(
            f"{out} is the root of the file system and cannot be an output; give a folder below it"
        )
    require_folder(out)
    require_folder(work)
    above_out, above_work = (
        next(p for p in (folder, *folder.parents) if p.exists()) for folder in (out, work)
    )
    if above_out.stat().st_dev != above_work.stat().st_dev:
        raise ShardError(
            f"{out} and {work} lie on different disks; unfinished work lies in {work}, and "
            "finished shards could not be renamed from there to the output: give a folder below "
            f"{out} as output folder, or one on the disk of {above_work}"
        )


def require_output_file(out: Path) -> None:
    """Check that a file can be written as `out`.

    Raises
    ------
    OutputError
        `out` is a folder, or the folder that it shall lie in cannot be written to.
    """
    if out.is_dir():
        raise OutputError(f"{out.absolute()} is a folder; give the name of a file")
    require_folder(out.parent)


def require_space(work: Path, rows: int, row_bytes: int) -> None:
    """Check that `rows` rows of `row_bytes` bytes fit on the disk of the work folder.

    Raises
    ------
    NoRoom
    """
    needed, free = rows * row_bytes, shutil.disk_usage(work).free
    if needed > free:
        raise NoRoom(
            f"{rows} rows of {row_bytes} bytes need {needed / 1e6:.1f} MB in {work}, and "
            f"{free / 1e6:.1f} MB are free; make room or give another output folder"
        )


def work_folders(out: Path) -> list[Path]:
    """Return the folders of unfinished work on an output, whatever the settings of each."""
    own = re.compile(re.escape(out.name) + "-[0-9a-f]{16}")
    return sorted(p for p in (out.parent / WORK_FOLDER).iterdir() if own.fullmatch(p.name))


def remove_leftovers(folder: Path, *patterns: str) -> None:
    """Remove files that dead runs have left in a folder; for the holder of the lock alone."""
    for pattern in patterns:
        for leftover in folder.glob(pattern):
            leftover.unlink(missing_ok=True)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder of unfinished work, whose shards have folders, unless it holds any."""
    for empty in [*folder.glob("*/"), folder]:
        with suppress(OSError):
            empty.rmdir()


@contextmanager
def only_writer(lock: Path, out: Path) -> Iterator[None]:
    """Hold the lock file `lock`, an empty file that stays, as the only writer of `out`.

    The lock ends with its process, however that ends. Where the file system has no locks, a
    second file beside it says who is writing; it stays where its process is killed.

    Raises
    ------
    ShardError
        Another process holds it.
    """
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ShardError(
                f"another process is writing {out}; wait until it has ended, or give another "
                "output folder"
            ) from error
        except OSError:
            with _only_creator(lock.with_suffix(".writer"), out):
                yield
        else:
            yield
    finally:
        os.close(descriptor)


@contextmanager
def _only_creator(path: Path, out: Path) -> Iterator[None]:
    """Hold a file that only one process can create."""
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(f"process {os.getpid()} on {socket.gethostname()}")
    except FileExistsError as error:
        raise ShardError(
            f"{path.read_text(encoding='utf-8')} is writing {out}, or was killed: the file system "
            f"has no locks that would tell; if it does not run any more, remove {path} and give "
            "the same command again"
        ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
