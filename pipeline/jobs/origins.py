"""What rows are made from, files or texts, and how a change is found: by CRC-32, row by row."""

import os
import socket
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.errors import FileReadError
from pipeline.hashing import sha256_of_texts
from pipeline.jobs.stamps import Stamps, file_stamps, stamps_sha256

Rows = npt.NDArray[np.int64]
Crc32 = npt.NDArray[np.uint32]


class Origin(Protocol):
    """What rows are made from.

    Attributes
    ----------
    files : the file of each row, which may change, disappear or come back; None: no files.
    stamps : size and modification time of each file; None: no files.
    plural : what the origins are called in messages, such as "images".
    """

    @property
    def files(self) -> Sequence[Path] | None: ...
    @property
    def stamps(self) -> Stamps | None: ...
    @property
    def plural(self) -> str: ...

    def digest(self) -> Any:
        """Return JSON values that change when an origin does; unfinished work is kept by them."""

    def crc32(self, rows: Rows) -> Crc32:
        """Return the CRC-32 of what rows (n,) are made from now, as their shards record it.

        Returns
        -------
        (n,) uint32; 0 where the file is missing.
        """


@dataclass(frozen=True)
class Files:
    """Rows that are made from files; consecutive rows may share one.

    Attributes
    ----------
    files : of each row.
    plural : see `Origin`.
    crc32_of : returns the CRC-32 of a file's contents, 0 where it is missing.
    readers : threads that read files.
    engine : what computes the rows, where it changes their last bits; unfinished work of another
        one is not continued.
    parts : what of its file each row is made from, as JSON values; None: the whole file.
    crc32_of_part : from a row and the CRC-32 of its file to that of its part.
    """

    files: Sequence[Path]
    plural: str
    crc32_of: Callable[[Path], int]
    readers: int
    engine: str = ""
    parts: Sequence[Any] | None = None
    crc32_of_part: Callable[[int, int], int] | None = None

    @cached_property
    def stamps(self) -> Stamps:
        """Size and modification time of each file, (rows, 2); each file is looked at once."""
        return file_stamps(self.files)

    def digest(self) -> Any:
        """Return engine, a digest of sizes and modification times, and the parts."""
        stamps = stamps_sha256(self.stamps)
        return [self.engine, stamps, *([list(self.parts)] if self.parts is not None else [])]

    def crc32(self, rows: Rows) -> Crc32:
        """Read the files of some rows, each file once; see `Origin`."""
        files = [self.files[row] for row in rows.tolist()]
        distinct = list(dict.fromkeys(files))
        with ThreadPoolExecutor(self.readers, thread_name_prefix="read") as pool:
            known = dict(zip(distinct, pool.map(self.crc32_of, distinct), strict=True))
        found = [known[file] for file in files]
        if (of_part := self.crc32_of_part) is not None:
            found = [of_part(row, crc) for row, crc in zip(rows.tolist(), found, strict=True)]
        return np.array(found, np.uint32)


@dataclass(frozen=True)
class Texts:
    """Rows that are made from texts.

    Attributes
    ----------
    texts : of each row.
    plural : see `Origin`.
    """

    texts: Sequence[str]
    plural: str = "captions"
    files: None = None
    stamps: None = None

    def digest(self) -> str:
        """Return the SHA-256 of all texts."""
        return sha256_of_texts(self.texts)

    def crc32(self, rows: Rows) -> Crc32:
        """Return the CRC-32 of the UTF-8 texts of some rows, (n,) uint32."""
        return text_crc32([self.texts[row] for row in rows.tolist()])


def text_crc32(texts: Sequence[str]) -> Crc32:
    """Return the CRC-32 of each UTF-8 text, (texts,) uint32."""
    return np.array([zlib.crc32(text.encode()) for text in texts], np.uint32)


def common_folder(files: Iterable[Path]) -> Path:
    """Return the lowest folder that contains all of some files."""
    return Path(os.path.commonpath({file.parent for file in files}))


def require_folder(folder: Path) -> None:
    """Raise if files are missing because their whole folder is, as when it was unmounted.

    Raises
    ------
    FileReadError
    """
    if not folder.exists():
        raise FileReadError(
            f"{folder}, the folder of the files, does not exist; mount it again, or prepare the "
            "dataset with the right one, and give the same command again: it resumes where it "
            "stopped"
        )


def missing_files(files: Sequence[Path]) -> list[int]:
    """Return the numbers of the files that this process does not see."""
    there = {file: os.access(file, os.F_OK) for file in {*files}}
    return [row for row, file in enumerate(files) if not there[file]]


def not_seen(file: Path, plural: str) -> FileReadError:
    """Return the error of a worker that does not see a file which the command sees."""
    return FileReadError(
        f"worker {socket.gethostname()} does not see {file}, which the command sees; mount the "
        f"folder of the {plural} on all workers under the same path, then give the same command "
        "again: it resumes where it stopped"
    )
