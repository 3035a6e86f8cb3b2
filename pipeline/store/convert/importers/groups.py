"""An HDF5 file with one group per image, as written by hloc."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import h5py
import numpy as np

from pipeline.store.convert.importers.source import require_floats, require_unbroken_groups
from pipeline.store.files import require_held
from pipeline.store.hashing import sha256_of_file
from pipeline.store.own_files import reading
from pipeline.store.shards.format import ShardError

_BYTES_AT_ONCE = 1 << 24


def open_groups(path: Path, dataset: str) -> "GroupFeatures":
    """Open a file after another process has read all of it."""
    require_unbroken_groups(path, _read_all, dataset)
    return GroupFeatures(path, dataset)


def _read_all(path: Path, dataset: str) -> None:
    features = GroupFeatures(path, dataset)
    row_bytes = int(np.prod(features.row_shape)) * features.dtype.itemsize
    step = max(1, _BYTES_AT_ONCE // max(1, row_bytes))
    for start in range(0, len(features.ids), step):
        features.read(start, min(start + step, len(features.ids)))


class GroupFeatures:
    """Groups named by image path, each with a dataset of the same shape: an `ImportSource`.

    Rows are in HDF5's name order, alphabetical by path component. Soft and external links are not
    followed.
    """

    layout = "hdf5-groups"

    def __init__(self, path: Path, dataset: str = "global_descriptor") -> None:
        """Find all groups with the dataset, and check that its shape is constant."""
        self.file: str = path.name
        self._path, self._dataset = path, dataset
        datasets: dict[str, tuple[tuple[int, ...], np.dtype]] = {}

        def visit(name: str, item: h5py.HLObject) -> None:
            group, _, last = name.rpartition("/")
            if last == dataset and group and isinstance(item, h5py.Dataset):
                if item.is_virtual or item.external:
                    raise ShardError(f"{path}: {name!r} is stored in other files; import those")
                datasets[group] = (require_held(item).shape, item.dtype)

        with self._reading(), h5py.File(path, "r") as file:
            file.visititems(visit)
        if not datasets:
            raise ShardError(
                f"{path} has no group with a dataset {dataset!r}; name the right dataset"
            )
        self.ids: Sequence[str] = list(datasets)
        self.row_shape, self.dtype = datasets[self.ids[0]]
        require_floats(self.dtype, f"{path}: {self.ids[0]}/{dataset}")
        for group, (shape, dtype) in datasets.items():
            if (shape, dtype) != (self.row_shape, self.dtype) or not shape:
                raise ShardError(
                    f"{path}: {group}/{dataset} is {shape} {dtype}, but that of {self.ids[0]} is "
                    f"{self.row_shape} {self.dtype}; all rows must have the same shape"
                )
        self.sha256: str = sha256_of_file(path)

    def read(self, start: int, stop: int) -> np.ndarray:
        rows = np.empty((stop - start, *self.row_shape), self.dtype)
        with self._reading(), h5py.File(self._path, "r") as file:
            for row in range(start, stop):
                file[self.ids[row]][self._dataset].read_direct(rows, None, np.s_[row - start])
        return rows

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self._path, "an HDF5 file of groups", "check the download", ShardError)

    def where(self, row: int) -> str:
        return f"{self._path}, {self.ids[row]}/{self._dataset}"
