"""Whether files are there: a missing one fails its row, a folder that has gone ends the run."""

import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline.images.decode import ImageReadError
from pipeline.shards.plan import Span


def common_folder(files: Iterable[Path]) -> Path:
    """Return the lowest folder that all of some files lie below."""
    return Path(os.path.commonpath({file.parent for file in files}))


def require_there(folder: Path) -> None:
    """Refuse to call files missing whose whole folder has gone, as when it was unmounted.

    Raises
    ------
    ImageReadError
    """
    if not folder.exists():
        raise ImageReadError(
            f"{folder}, the folder of the files, is not there; mount it again, or prepare the "
            "dataset with the right one, and give the same command again: it goes on where it "
            "stopped"
        )


def absent_rows(files: Sequence[Path]) -> list[int]:
    """Return the numbers of the files that this process does not see."""
    there = {file: os.access(file, os.F_OK) for file in {*files}}
    return [row for row, file in enumerate(files) if not there[file]]


def seen_files(files: Sequence[Path], rows: Span, folder: Path) -> dict[str, list[Any]]:
    """Return, for a worker, some rows' files and the numbers among them that are not seen here.

    Parameters
    ----------
    files : of all rows.
    rows : which of them.
    folder : the lowest that has all files below it.

    Raises
    ------
    ImageReadError
        Some are missing because the folder has gone.
    """
    some = files[rows.start : rows.stop]
    if absent := absent_rows(some):
        require_there(folder)
    return {"files": [str(file.absolute()) for file in some], "absent": absent}


def not_seen(file: Path, files: str) -> ImageReadError:
    """Return the error of a worker that does not see a file, one of `files`, as "pictures"."""
    return ImageReadError(
        f"worker {socket.gethostname()} does not see {file}, which the command sees; mount the "
        f"folder of the {files} on all workers under the same path, then give the same command "
        "again: it goes on where it stopped"
    )
