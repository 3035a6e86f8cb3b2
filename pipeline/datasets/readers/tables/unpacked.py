"""Images stored in a table or an archive, written to files with unchanged bytes."""

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from PIL import Image

from pipeline.datasets.checks import check_relative
from pipeline.datasets.readers.tables.table import RowFault
from pipeline.store.files import appearing_whole

MAX_BYTES = 2**30
"""Upper bound of the size of an image."""

_BLOCK = 1 << 20
# Bytes, of Linux and macOS, less the suffix of an unfinished file; see `appearing_whole`.
_LONGEST_NAME, _LONGEST_PATH = 255 - 18, 1024 - 18


class UnpackedImages:
    """A folder of unpacked images; existing ones are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._digests: dict[str, bytes] = {}

    def add(self, name: str, stream: io.BufferedIOBase) -> None:
        """Write a seekable stream, from its start, to the file `name` atomically.

        A file with the same bytes is kept, so that an interrupted run resumes.
        """
        if reason := check_relative(name):
            raise RowFault("unusable path", f"the image's name {name!r} {reason}", name)
        digest = _digest(stream)
        if self._digests.setdefault(name, digest) != digest:
            raise RowFault(
                "name of several images",
                f"{name!r} is the name of another image before; rename one of them",
                name,
            )
        path, parts = self.folder / name, [part.encode() for part in PurePosixPath(name).parts]
        if max(map(len, parts)) > _LONGEST_NAME or len(os.fsencode(path)) > _LONGEST_PATH:
            raise RowFault(
                "unusable path",
                f"the image's name {name[:60]!r}... has {len(name.encode())} bytes, expected at "
                f"most {_LONGEST_NAME} for each folder and file; rename it",
                name,
            )
        if path.is_dir() or any((self.folder / p).is_file() for p in PurePosixPath(name).parents):
            raise RowFault("unusable path", f"{path} is a folder, or below a file", name)
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as existing:
                if _digest(existing) == digest:
                    return
        stream.seek(0)
        with appearing_whole(path) as part, part.open("wb") as target:
            while block := stream.read(_BLOCK):
                target.write(block)

    def member(self, tar: Path, start: int, name: str, stream: io.BufferedIOBase) -> str:
        """Write the image of a member of a tar file; return its path."""
        self.add(name, stream)
        return name

    def cell(self, table: Path, row: int, column: str, name: str | None, data: bytes) -> str:
        """Write the bytes of an image file in a row of a table; return its path."""
        name = name_of_bytes(data, name, self._digests)
        self.add(name, io.BytesIO(data))
        return name


def name_of_bytes(data: bytes, name: str | None, digests: Mapping[str, bytes]) -> str:
    """Return the name of an image stored as bytes; `digests` has the SHA-256 of those before.

    A missing name, or one that another image has, is replaced by one from the SHA-256 of the bytes,
    so that equal bytes are one image.
    """
    if len(data) > MAX_BYTES:
        raise RowFault("image too large", f"the image has {len(data)} bytes, over {MAX_BYTES}")
    digest = hashlib.sha256(data)
    name = PurePosixPath(name).as_posix() if name else None
    if name is None or digests.get(name, digest.digest()) != digest.digest():
        stem = f"{PurePosixPath(name).stem}-" if name else ""
        name = f"{stem}{digest.hexdigest()[:16]}.{_suffix(data)}"
    return name


def is_file(path: Path) -> bool:
    """Return whether a file exists; False for a path that no file can have."""
    try:
        return path.is_file()
    except OSError:
        return False


def _digest(stream: io.BufferedIOBase) -> bytes:
    stream.seek(0)
    return hashlib.file_digest(stream, "sha256").digest()


def _suffix(data: bytes) -> str:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return {"jpeg": "jpg", "mpo": "jpg"}.get(kind := (image.format or "").lower(), kind)
    except Exception:  # Pillow raises arbitrary exceptions on invalid bytes
        raise RowFault("not an image", "the bytes are not an image of a known format") from None
