"""Bottom-up attention's region features: its TSV, and folders with an .npz file an image."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.shards.convert.importers.source import (
    LayoutError,
    named_fault,
    require_floats,
    sha256_of_files,
)

# Columns of github.com/peteanderson80/bottom-up-attention: image_id, image_w, image_h,
# num_boxes, boxes, features; the last two are base64 of little-endian float32.
_COLUMNS, _ID, _BOXES = 6, 0, 3
# No image has more boxes; Python converts no more than 4,300 digits.
_BOXES_DIGITS = 9
_COLUMN = {"boxes": 4, "features": 5}


class TsvFeatures:
    """The TSV of bottom-up attention with as many boxes in every line (the "36 boxes" files).

    Only the places of the lines are kept in memory. One column is read: `features`, or `boxes`
    as features of their own, for the other is not kept. See `ImportSource`.
    """

    layout = "bottom-up-tsv"
    dtype = np.dtype("<f4")

    def __init__(self, path: Path, column: str = "features") -> None:
        """Go through all lines once: ids, places, number of boxes, SHA-256.

        Raises
        ------
        LayoutError
            A line is not of this kind; its number and id are named.
        """
        if column not in _COLUMN:
            raise LayoutError(f"{path} has columns {sorted(_COLUMN)}, not {column!r}; name one")
        self.file, self._path, self._column = path.name, path, _COLUMN[column]
        ids: list[str] = []
        self._offsets: list[int] = []
        digest, offset, first = hashlib.sha256(), 0, (0, 0)
        try:
            with path.open("rb") as stream:
                for number, line in enumerate(stream, start=1):
                    where = f"{path}, line {number}"
                    digest.update(line)
                    fields = line.rstrip(b"\r\n").split(b"\t")
                    if len(fields) != _COLUMNS or not _is_count(fields[_BOXES]):
                        raise LayoutError(
                            f"{where}: {len(fields)} columns; {_COLUMNS} were expected, separated "
                            "by tabs, with a number of boxes in the fourth"
                        )
                    row_id = fields[_ID].decode("utf-8", "backslashreplace")
                    size = int(fields[_BOXES]), len(fields[self._column])
                    if number == 1:
                        first = size
                    if size != first:
                        raise LayoutError(
                            f"{where}, id {row_id!r}: {size[0]} boxes in {size[1]} characters, "
                            f"{first[0]} in {first[1]} in line 1; only files with a fixed number "
                            "of boxes can be imported"
                        )
                    ids.append(row_id)
                    self._offsets.append(offset)
                    offset += len(line)
        except OSError as error:
            raise LayoutError(f"{path} cannot be read ({error.strerror})") from error
        if not ids:
            raise LayoutError(f"{path} is empty")
        self.ids: Sequence[str] = ids
        self.sha256: str = digest.hexdigest()
        self._boxes = first[0]
        values = len(self._decoded(0)) // 4
        if not self._boxes or not values or values % self._boxes:
            raise LayoutError(f"{path}, line 1: {values} numbers for {self._boxes} boxes")
        self.row_shape: tuple[int, ...] = (self._boxes, values // self._boxes)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Decode the lines of these rows."""
        rows = np.empty((stop - start, *self.row_shape), self.dtype)
        for row in range(start, stop):
            data = self._decoded(row)
            if len(data) != rows[0].nbytes:
                raise LayoutError(
                    f"{self.where(row)}, id {self.ids[row]!r}: {len(data)} bytes, not "
                    f"{rows[0].nbytes}"
                )
            rows[row - start] = np.frombuffer(data, self.dtype).reshape(self.row_shape)
        return rows

    def where(self, row: int) -> str:
        """Return the file and the line."""
        return f"{self._path}, line {row + 1}"

    def _decoded(self, row: int) -> bytes:
        with self._path.open("rb") as stream:
            stream.seek(self._offsets[row])
            field = stream.readline().rstrip(b"\r\n").split(b"\t")[self._column]
        try:
            return base64.b64decode(field, validate=True)
        except ValueError as error:
            raise LayoutError(
                f"{self.where(row)}, id {self.ids[row]!r}: no base64 ({error})"
            ) from error


class NpzFolderFeatures:
    """A folder with `<id>.npz` for each image, in the order of the names.

    One array of each file is read, never unpickled. See `ImportSource`.
    """

    layout = "npz-folder"

    def __init__(self, folder: Path, array: str = "features") -> None:
        """List the files, hash them, and take shape and type from the first.

        Parameters
        ----------
        folder : of the files.
        array : name of the array in each file.

        Raises
        ------
        LayoutError
        """
        self._files = sorted(folder.glob("*.npz"), key=lambda path: path.name)
        if not self._files:
            raise LayoutError(f"{folder} holds no .npz file")
        self.file, self._array = folder.absolute().name, array
        self.ids: Sequence[str] = [path.stem for path in self._files]
        first = self._load(0)
        self.row_shape: tuple[int, ...] = first.shape
        self.dtype = require_floats(first.dtype, self.where(0))
        self.sha256: str = sha256_of_files(self._files)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the files of these rows."""
        rows = np.empty((stop - start, *self.row_shape), self.dtype)
        for row in range(start, stop):
            array = self._load(row)
            if (array.shape, array.dtype) != (self.row_shape, self.dtype):
                raise LayoutError(
                    f"{self.where(row)}: {self._array!r} is {array.shape} {array.dtype}, in the "
                    f"first file {self.row_shape} {self.dtype}; only a fixed number of boxes can "
                    "be imported"
                )
            rows[row - start] = array
        return rows

    def where(self, row: int) -> str:
        """Return the file."""
        return str(self._files[row])

    def _load(self, row: int) -> np.ndarray:
        what = f"{self.where(row)} is no readable .npz file of numbers"
        with (
            named_fault(what, "pickled objects are not read"),
            self._files[row].open("rb") as stream,
            np.load(stream, allow_pickle=False) as arrays,
        ):
            if self._array not in arrays.files:
                raise LayoutError(
                    f"{self.where(row)} has no array {self._array!r} but {arrays.files}; "
                    "name one of those"
                )
            found = arrays[self._array]
            if not isinstance(found, np.ndarray):
                raise TypeError(f"{self._array!r} is no array")
            return found


def _is_count(field: bytes) -> bool:
    return field.isdigit() and len(field) <= _BOXES_DIGITS
