"""An HDF5 file with one group per image, as written by hloc."""

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from pipeline.store.convert.importers.source import LayoutError, require_floats
from pipeline.store.files import require_held
from pipeline.store.hashing import sha256_of_file


class GroupFeatures:
    """Groups named by image path, each with a dataset of the same shape.

    Rows are in HDF5's name order, alphabetical by path component. Soft and external links are not
    followed. See `ImportSource`.
    """

    layout = "hdf5-groups"

    def __init__(self, path: Path, dataset: str = "global_descriptor") -> None:
        """Find all groups with the dataset, and check that its shape is constant.

        Parameters
        ----------
        path : Path. The HDF5 file.
        dataset : str. Name of the dataset in each group.

        Raises
        ------
        LayoutError
        """
        self.file: str = path.name
        self._path, self._dataset = path, dataset
        found: dict[str, tuple[tuple[int, ...], np.dtype]] = {}

        def visit(name: str, item: h5py.HLObject) -> None:
            group, _, last = name.rpartition("/")
            if last == dataset and group and isinstance(item, h5py.Dataset):
                if item.is_virtual or item.external:
                    raise LayoutError(f"{path}: {name!r} is stored in other files; import those")
                found[group] = (require_held(item).shape, item.dtype)

        try:
            with h5py.File(path, "r") as file:
                file.visititems(visit)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise LayoutError(f"{path} is not a readable HDF5 file ({error})") from error
        if not found:
            raise LayoutError(
                f"{path} has no group with a dataset {dataset!r}; name the right dataset"
            )
        self.ids: Sequence[str] = list(found)
        self.row_shape, self.dtype = found[self.ids[0]]
        require_floats(self.dtype, f"{path}: {self.ids[0]}/{dataset}")
        for group, (shape, dtype) in found.items():
            if (shape, dtype) != (self.row_shape, self.dtype) or not shape:
                raise LayoutError(
                    f"{path}: {group}/{dataset} is {shape} {dtype}, but that of {self.ids[0]} is "
                    f"{self.row_shape} {self.dtype}; all rows must have the same shape"
                )
        self.sha256: str = sha256_of_file(path)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the datasets of these rows."""
        rows = np.empty((stop - start, *self.row_shape), self.dtype)
        try:
            with h5py.File(self._path, "r") as file:
                for row in range(start, stop):
                    file[self.ids[row]][self._dataset].read_direct(rows, None, np.s_[row - start])
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise LayoutError(f"{self._path}, rows {start} to {stop - 1}: {error}") from error
        return rows

    def where(self, row: int) -> str:
        """Return the file and the dataset."""
        return f"{self._path}, {self.ids[row]}/{self._dataset}"
