"""Sources of rows, files or texts, and change detection by the CRC-32 of each row."""

import hashlib
import socket
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.store.current.row_stamps import Stamps
from pipeline.store.current.snapshot import BY_BYTES, Identities, file_identities
from pipeline.store.errors import FileReadError
from pipeline.store.hashing import sha256_of_texts
from pipeline.store.objects.urls import shown, url_of
from pipeline.store.shards.row_keys import RowNumbers

ALL = slice(None)
Crc32 = npt.NDArray[np.uint32]


class Origin(Protocol):
    """Sources of the rows of a feature set.

    Attributes
    ----------
    files : sequence of Path or None. File of each row, which may change, disappear or reappear;
        None: no files.
    stamps : (rows, 2) or None. Size and modification time of each file; None: no files.
    versioned : bool. Whether equal stamps prove equal bytes.
    plural : str. Plural noun for the sources in messages, such as "images".
    """

    @property
    def files(self) -> Sequence[Path] | None: ...
    @property
    def stamps(self) -> Stamps | None: ...
    @property
    def versioned(self) -> bool: ...
    @property
    def plural(self) -> str: ...

    def digest(self, rows: slice = ALL) -> Any:
        """Return a fingerprint of the sources of rows as JSON values.

        That of all identifies unfinished work.
        """

    def crc32(self, rows: RowNumbers) -> Crc32:
        """Return the CRC-32 of the current sources of rows (n,), as recorded in shards.

        Returns
        -------
        (n,) uint32; 0 where the file is missing.
        """


@dataclass(frozen=True)
class Files:
    """Rows computed from files; consecutive rows may share one."""

    files: Sequence[Path]  # of each row
    plural: str
    crc32_of: Callable[[Path], int]  # CRC-32 of a file's contents, 0 if it is missing
    readers: int  # threads that read files
    engine: str = ""  # of the rows, if it affects their last bits: unfinished work is not mixed
    parts: Sequence[Any] | None = None  # JSON: part of the file of each row; None: the whole file
    crc32_of_part: Callable[[int, int], int] | None = None  # from the row and its file's CRC-32

    @cached_property
    def _identities(self) -> Identities:
        return file_identities(self.files)

    @cached_property
    def stamps(self) -> Stamps:
        """Size and modification time of each file, (rows, 2); one stat per file."""
        return np.ascontiguousarray(self._identities[:, :2])

    @property
    def versioned(self) -> bool:
        """Whether each file has a version, such as an ETag, that differs for other bytes."""
        there = self._identities[:, 0] >= 0
        return bool(there.any() and (self._identities[there, 4] == BY_BYTES).all())

    def digest(self, rows: slice = ALL) -> Any:
        """Return engine, a digest of sizes and modification times, and the parts."""
        stamps = hashlib.sha256(self.stamps[rows].tobytes()).hexdigest()
        return [self.engine, stamps, *([[*self.parts[rows]]] if self.parts is not None else [])]

    def crc32(self, rows: RowNumbers) -> Crc32:
        """Return the CRC-32 of the sources of rows; each file is read once; see `Origin`."""
        files = [self.files[row] for row in rows.tolist()]
        distinct = list(dict.fromkeys(files))
        with ThreadPoolExecutor(self.readers, thread_name_prefix="read") as pool:
            crc32_of = dict(zip(distinct, pool.map(self.crc32_of, distinct), strict=True))
        crc32 = [crc32_of[file] for file in files]
        if (of_part := self.crc32_of_part) is not None:
            crc32 = [of_part(row, crc) for row, crc in zip(rows.tolist(), crc32, strict=True)]
        return np.array(crc32, np.uint32)


@dataclass(frozen=True)
class Texts:
    """Rows computed from texts."""

    texts: Sequence[str]
    plural: str = "captions"
    files: None = None
    stamps: None = None
    versioned: bool = False

    def digest(self, rows: slice = ALL) -> str:
        """Return the SHA-256 of texts."""
        return sha256_of_texts(self.texts[rows])

    def crc32(self, rows: RowNumbers) -> Crc32:
        """Return the CRC-32 of the UTF-8 texts of rows, (n,) uint32."""
        return text_crc32([self.texts[row] for row in rows.tolist()])


def text_crc32(texts: Sequence[str]) -> Crc32:
    """Return the CRC-32 of each UTF-8 text, (texts,) uint32."""
    return np.array([zlib.crc32(text.encode()) for text in texts], np.uint32)


def require_folder(folder: Path) -> None:
    """Raise if the whole folder of the files is missing, for example unmounted."""
    if (url := url_of(folder)) is not None:
        # Imported for URLs alone, as in `inner_files`.
        from pipeline.store.objects.sources import exists

        there = exists(url)
    else:
        there = folder.exists()
    if not there:
        raise FileReadError(
            f"{shown(folder)}, the folder of the files, does not exist; mount it, or prepare the "
            "dataset with another one, then rerun the command to resume"
        )


def missing_files(files: Sequence[Path]) -> list[bool]:
    """Return whether each file does not exist for this process."""
    missing: list[bool] = (file_identities(files)[:, 0] < 0).tolist()
    return missing


def not_seen(file: Path, plural: str) -> FileReadError:
    """Return the error for a file that is visible to the command but not to a worker."""
    return FileReadError(
        f"worker {socket.gethostname()} does not see {shown(file)}, which the command sees; mount "
        f"the folder of the {plural} on all workers under the same path, then rerun the command to "
        "resume"
    )
