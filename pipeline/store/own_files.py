"""Reading of own and imported files: one named error in place of those that libraries raise.

h5py, safetensors, msgspec, json and numpy have no common exception for a corrupt file: a flipped
bit ends in an OSError, KeyError, TypeError, AttributeError or MemoryError, by its position.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.store.errors import FileReadError, PipelineError
from pipeline.store.objects.urls import url_of

# System errors that are properties of the file or its folder: part of it is missing.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)


# Git LFS leaves a text of three lines in place of a file that it has not downloaded.
_POINTER = b"version https://git-lfs.github.com/spec/"
NOT_DOWNLOADED = "a pointer of Git LFS in place of the file; run `git lfs pull`"


class DamagedFile(PipelineError):
    """A file of this project is missing, corrupt, or of another format."""


def is_pointer(data: bytes) -> bool:
    """Return whether a file that begins with `data` is a pointer of Git LFS."""
    return data.startswith(_POINTER)


def require_downloaded(path: Path, error: type[PipelineError]) -> None:
    """Raise `error` if a local file is a pointer of Git LFS; a pipe can be read once only."""
    if not path.is_file():
        return
    with suppress(OSError), path.open("rb") as stream:
        if is_pointer(stream.read(len(_POINTER))):
            raise error(f"{path} is {NOT_DOWNLOADED}")


@contextmanager
def reading(
    path: Path,
    what: str,
    remedy: str,
    error: type[PipelineError] = DamagedFile,
    refused: type[PipelineError] = FileReadError,
) -> Iterator[None]:
    """Turn the errors of reading and checking `path` into `error`, with what, cause and remedy.

    A read that the system refuses (permission, disk) does not prove corruption: `refused`. Errors
    that a user can fix are passed on.
    """
    try:
        yield
    except PipelineError:
        raise
    except Exception as cause:
        if isinstance(cause, OSError) and url_of(path) is None and not path.exists():
            raise error(f"{path} not found, expected {what}; {remedy}") from cause
        if isinstance(cause, OSError) and cause.errno and cause.errno not in _ABSENT:
            raise refused(_why_refused(path, cause.errno)) from cause
        require_downloaded(path, error)
        raise error(f"{path} is damaged or not {what} ({reason_of(cause)}); {remedy}") from cause


def _why_refused(path: Path, number: int) -> str:
    if number == errno.EAGAIN:
        return (
            f"{path} is locked: another program has it open for writing; end that program, or, if "
            "there is none and the file system keeps the lock, set HDF5_USE_FILE_LOCKING=FALSE"
        )
    return (
        f"{path} cannot be read ({os.strerror(number)}); check its permissions and the disk; "
        "nothing was changed"
    )


def reason_of(error: Exception) -> str:
    """Return what an exception of a library states, on one line, or else its type."""
    text = " ".join(str(error).split())
    if type(error) is KeyError and error.args:  # whose text is quoted, and often the key alone
        text = " ".join(str(error.args[0]).split())
        text = text if " " in text else f"{text!r} is missing"
    return text or type(error).__name__
