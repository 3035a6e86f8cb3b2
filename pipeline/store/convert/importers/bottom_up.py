"""Region features of bottom-up attention: its TSV, and folders with one .npz file per image."""

import base64
import hashlib
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pipeline.store.convert.importers.source import require_floats, sha256_of_files
from pipeline.store.own_files import reading
from pipeline.store.shards.format import ShardError
from pipeline.store.wording import counted

# Columns of github.com/peteanderson80/bottom-up-attention: image_id, image_w, image_h,
# num_boxes, boxes, features; the last two are base64 of little-endian float32.
_COLUMNS, _ID, _BOXES = 6, 0, 3
# More than any image needs; Python converts at most 4,300 digits.
_BOXES_DIGITS = 9
_COLUMN = {"boxes": 4, "features": 5}


class TsvFeatures:
    """TSV of bottom-up attention with the same number of boxes in every line ("36 boxes" files).

    An `ImportSource`. Only the offsets of the lines are kept in memory. One column is read:
    `features`, or `boxes` as features. Lines that are repeated, as in published files, count once.
    """

    layout = "bottom-up-tsv"
    dtype: np.dtype = np.dtype("<f4")

    def __init__(
        self, path: Path, column: str = "features", log: Callable[[str], object] = len
    ) -> None:
        """Scan all lines once: ids, offsets, number of boxes, SHA-256."""
        if column not in _COLUMN:
            raise ShardError(f"{path}: unknown column {column!r}; known: {sorted(_COLUMN)}")
        self.file: str = path.name
        self._path, self._column = path, _COLUMN[column]
        rows: dict[str, int] = {}
        ids: list[str] = []
        self._offsets: list[int] = []
        self._numbers: list[int] = []
        repeated: list[str] = []
        digest, offset, first = hashlib.sha256(), 0, (0, 0)
        with (
            reading(path, "a TSV of bottom-up attention", "check the path", ShardError),
            path.open("rb") as stream,
        ):
            for number, line in enumerate(stream, start=1):
                where = f"{path}, line {number}"
                digest.update(line)
                start, offset = offset, offset + len(line)
                fields = _stripped(line).split(b"\t")
                if len(fields) != _COLUMNS or not _is_count(fields[_BOXES]):
                    raise ShardError(
                        f"{where}: found {len(fields)} columns, expected {_COLUMNS}, separated "
                        "by tabs, with a number of boxes in the fourth"
                    )
                row_id = fields[_ID].decode("utf-8", "backslashreplace")
                size = int(fields[_BOXES]), len(fields[self._column])
                if number == 1:
                    first = size
                if size != first:
                    raise ShardError(
                        f"{where}, id {row_id!r}: {size[0]} boxes in {size[1]} characters, but "
                        f"{first[0]} in {first[1]} in line 1; only files with a fixed number "
                        "of boxes can be imported"
                    )
                earlier = rows.setdefault(row_id, len(ids))
                if earlier < len(ids) and self._line(earlier) == _stripped(line):
                    repeated.append(row_id)
                    continue
                ids.append(row_id)
                self._offsets.append(start)
                self._numbers.append(number)
        if repeated:
            log(f"{path}: left out {counted(len(repeated), 'repeated line')}, first {repeated[:5]}")
        if not ids:
            raise ShardError(f"{path} is empty")
        self.ids: Sequence[str] = ids
        self.sha256: str = digest.hexdigest()
        self._boxes = first[0]
        values = len(self._decoded(0)) // 4
        if not self._boxes or not values or values % self._boxes:
            raise ShardError(f"{path}, line 1: {values} numbers for {self._boxes} boxes")
        self.row_shape: tuple[int, ...] = (self._boxes, values // self._boxes)

    def read(self, start: int, stop: int) -> np.ndarray:
        rows = np.empty((stop - start, *self.row_shape), self.dtype)
        for row in range(start, stop):
            data = self._decoded(row)
            if len(data) != rows[0].nbytes:
                raise ShardError(
                    f"{self.where(row)}, id {self.ids[row]!r}: found {len(data)} bytes, expected "
                    f"{rows[0].nbytes}"
                )
            rows[row - start] = np.frombuffer(data, self.dtype).reshape(self.row_shape)
        return rows

    def where(self, row: int) -> str:
        return f"{self._path}, line {self._numbers[row]}"

    def _line(self, row: int) -> bytes:
        with self._path.open("rb") as stream:
            stream.seek(self._offsets[row])
            return _stripped(stream.readline())

    def _decoded(self, row: int) -> bytes:
        field = self._line(row).split(b"\t")[self._column]
        try:
            return base64.b64decode(field, validate=True)
        except ValueError as error:
            raise ShardError(
                f"{self.where(row)}, id {self.ids[row]!r}: not base64 ({error})"
            ) from error


class NpzFolderFeatures:
    """A folder with `<id>.npz` for each image, also below it, in name order: an `ImportSource`.

    Other files and linked folders are logged.
    """

    layout = "npz-folder"

    def __init__(
        self, folder: Path, array: str = "features", log: Callable[[str], object] = len
    ) -> None:
        """List and hash the files; read shape and dtype of the array from the first."""
        names, others = list[str](), list[str]()
        for path in folder.rglob("*"):
            usable = path.suffix == ".npz" and path.is_file() and not path.name.startswith(".")
            if usable or path.is_symlink() or not path.is_dir():
                (names if usable else others).append(path.relative_to(folder).as_posix())
        names.sort()
        if others:
            log(f"{folder}: left out {counted(len(others), 'name')}, first {sorted(others)[:5]}")
        self._files = [folder / name for name in names]
        if not self._files:
            raise ShardError(f"{folder} has no .npz file")
        self.file: str = folder.absolute().name
        self._array = array
        self.ids: Sequence[str] = [name.removesuffix(".npz") for name in names]
        first = self._load(0)
        self.row_shape: tuple[int, ...] = first.shape
        self.dtype: np.dtype = require_floats(first.dtype, self.where(0))
        self.sha256: str = sha256_of_files(folder, names)

    def read(self, start: int, stop: int) -> np.ndarray:
        rows = np.empty((stop - start, *self.row_shape), self.dtype)
        for row in range(start, stop):
            array = self._load(row)
            if (array.shape, array.dtype) != (self.row_shape, self.dtype):
                raise ShardError(
                    f"{self.where(row)}: {self._array!r} is {array.shape} {array.dtype}, in the "
                    f"first file {self.row_shape} {self.dtype}; only a fixed number of boxes can "
                    "be imported"
                )
            rows[row - start] = array
        return rows

    def where(self, row: int) -> str:
        return str(self._files[row])

    def _load(self, row: int) -> np.ndarray:
        path, what = self._files[row], "an .npz file of numbers"
        with (
            reading(path, what, "pickled objects are not read", ShardError),
            path.open("rb") as stream,
            np.load(stream, allow_pickle=False) as arrays,
        ):
            if self._array not in arrays.files:
                raise ShardError(
                    f"{self.where(row)} has no array {self._array!r}; known: {arrays.files}"
                )
            if arrays.files.count(self._array) > 1:
                raise ShardError(f"{self.where(row)} has the array {self._array!r} more than once")
            values = arrays[self._array]
            if not isinstance(values, np.ndarray):
                raise TypeError(f"{self._array!r} is not an array")
            return values


def _stripped(line: bytes) -> bytes:
    return line.removeprefix(BOM_UTF8).rstrip(b"\r\n")


def _is_count(field: bytes) -> bool:
    return field.isdigit() and len(field) <= _BOXES_DIGITS
