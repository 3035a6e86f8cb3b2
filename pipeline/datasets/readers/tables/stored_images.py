"""Images that are stored in tar and Parquet files, and stay there: their paths, not their bytes."""

import hashlib
import io
import os
from pathlib import Path
from typing import Protocol

from pipeline.datasets.checks import check_relative
from pipeline.datasets.readers.tables.table import RowFault
from pipeline.datasets.readers.tables.unpacked import name_of_bytes
from pipeline.store.inner_files import bytes_of, in_parquet, in_tar
from pipeline.store.objects.urls import absolute


class StoredImages(Protocol):
    """What becomes of images that are found in files: `ImagesInPlace`, or `UnpackedImages`.

    Both methods return the path of an image below `folder`. Equal names with equal bytes are one
    image; with other bytes, a member is a `RowFault`, and a cell is renamed.
    """

    folder: Path

    def member(self, tar: Path, start: int, name: str, stream: io.BufferedIOBase) -> str:
        """Add a member of a tar file, whose bytes begin at `start`."""

    def cell(self, table: Path, row: int, column: str, name: str | None, data: bytes) -> str:
        """Add the bytes of an image file in a row of a Parquet file, from 0."""


class ImagesInPlace:
    """Images inside of files below a folder; nothing is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: dict[str, str] = {}
        self._digests: dict[str, bytes] = {}

    def member(self, tar: Path, start: int, name: str, stream: io.BufferedIOBase) -> str:
        size = stream.seek(0, os.SEEK_END)
        path = in_tar(self._below(tar), start, size, name)
        first = self._first(name, path)
        if first != path and bytes_of(self.folder / first) != bytes_of(self.folder / path):
            raise RowFault(
                "name of several images",
                f"{name!r} is the name of another image before, {first}; rename one of them",
                name,
            )
        return first

    def cell(self, table: Path, row: int, column: str, name: str | None, data: bytes) -> str:
        name = name_of_bytes(data, name, self._digests)
        self._digests[name] = hashlib.sha256(data).digest()
        return self._first(name, in_parquet(self._below(table), row, column, name))

    def _first(self, name: str, path: str) -> str:
        """Return the path of the first image with a name, which is this one as a rule."""
        if reason := check_relative(name):
            raise RowFault("unusable path", f"the image's name {name!r} {reason}", name)
        return self._paths.setdefault(name, path)

    def _below(self, file: Path) -> str:
        return absolute(file).relative_to(self.folder).as_posix()
