"""Features in one array, identified by position: NumPy files of VSE++ and SCAN, and MATLAB's."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.store.convert.importers.matlab import read_matrix
from pipeline.store.convert.importers.source import require_floats
from pipeline.store.hashing import sha256_of_file
from pipeline.store.own_files import reading
from pipeline.store.shards.format import ShardError


class NpyFeatures:
    """A `*_ims.npy` of VSE++ or SCAN: row n belongs to line n of a list of ids.

    An `ImportSource`. The file is memory-mapped and never unpickled.
    """

    layout = "npy"

    def __init__(self, path: Path, ids: Sequence[str], every: int = 1) -> None:
        """Open a file (rows, ...) and check its shape against the ids.

        `ids` has one per image, or one per row, repeated like the rows. `every` consecutive rows of
        each image are compared, and one is kept; 5 in files for VSE++.
        """
        # Not np.load, which detects zip and pickle by the first bytes, sometimes wrongly.
        what, remedy = "a .npy file of numbers", "pickled objects are not read"
        with reading(path, what, remedy, ShardError):
            _require_header(path)
            array = np.lib.format.open_memmap(path, mode="r")
        if array.ndim < 2:
            raise ShardError(f"{path}: found {array.ndim} axes, expected (rows, dim) or more")
        self.file: str = path.name
        self._path, self._every = path, every
        self._array = array
        self.row_shape: tuple[int, ...] = array.shape[1:]
        self.dtype: np.dtype = require_floats(array.dtype, str(path))
        if len(array) % every:
            raise ShardError(
                f"{path} has {len(array)} rows, which is not a multiple of {every}; check the "
                "number of rows per image"
            )
        images = len(array) // every
        if len(ids) == len(array) and every > 1:
            ids = _without_repeats(ids, every, str(path))
        if len(ids) != images:
            raise ShardError(
                f"{path} has {len(array)} rows, {every} per image, so {images} images, but there "
                f"are {len(ids)} ids"
                + (
                    "; VSE++ repeats each image 5 times: read every 5 rows as one"
                    if len(array) == 5 * len(ids)
                    else ""
                )
            )
        self.ids = ids
        self.sha256: str = sha256_of_file(path)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return one row per image; raise if its repeated rows differ."""
        every = self._every
        rows = np.asarray(self._array[start * every : stop * every])
        rows = rows.reshape(stop - start, every, *self.row_shape)
        same = (rows == rows[:, :1]).reshape(stop - start, -1).all(axis=1)
        # NaN differs from itself; it is rejected later, with a better message.
        same |= ~np.isfinite(rows[:, 0].reshape(stop - start, -1)).all(axis=1)
        for image in (start + np.flatnonzero(~same)).tolist():
            raise ShardError(
                f"{self.where(image)}, id {self.ids[image]!r}: the {every} rows differ, so they "
                "are not copies for one image; check the number of rows per image"
            )
        return rows[:, 0]

    def where(self, row: int) -> str:
        return f"{self._path}, row {row * self._every}"


class MatFeatures:
    """Karpathy's `vgg_feats.mat`: a variable (dim, images), one column per image.

    An `ImportSource`. The format requires reading the whole variable into memory.
    """

    layout = "mat"

    def __init__(self, path: Path, ids: Sequence[str], variable: str = "feats") -> None:
        """Read the variable and check its shape against the ids, one per column."""
        what, remedy = "a MATLAB file of version 4 to 7.2", "check that the download is complete"
        with reading(path, what, remedy, ShardError):
            array = read_matrix(path, variable)
        if array is None or array.ndim != 2:
            raise ShardError(
                f"{path} has no variable {variable!r} of real floating point numbers, "
                "(dim, images); name another one"
            )
        self.file: str = path.name
        self._path = path
        self.dtype: np.dtype = array.dtype
        if array.shape[1] != len(ids):
            raise ShardError(
                f"{path}: {variable!r} is {array.shape}, so {array.shape[1]} images, but there are "
                f"{len(ids)} ids"
            )
        self._rows = array.T
        self.row_shape: tuple[int, ...] = self._rows.shape[1:]
        self.ids = ids
        self.sha256: str = sha256_of_file(path)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self._rows[start:stop]

    def where(self, row: int) -> str:
        return f"{self._path}, column {row}"


def _require_header(path: Path) -> None:
    """Raise ValueError for a shape or an item size that ends numpy's memory map in a SIGFPE."""
    with path.open("rb") as file:
        major, _ = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        shape, _, dtype = (read if major == 1 else np.lib.format.read_array_header_2_0)(file)
    if dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} of {dtype.str} items")


def _without_repeats(ids: Sequence[str], every: int, where: str) -> list[str]:
    for start in range(0, len(ids), every):
        if len(set(ids[start : start + every])) != 1:
            raise ShardError(
                f"{where}: the ids of rows {start} to {start + every - 1} are "
                f"{list(ids[start : start + every])}, expected one id {every} times; check the "
                "number of rows per image"
            )
    return list(ids[::every])
