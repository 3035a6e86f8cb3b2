"""An HDF5 file with one group per image, as written by hloc."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import h5py
import numpy as np

from pipeline.store.convert.importers.source import require_floats, require_unbroken_groups
from pipeline.store.files import require_held
from pipeline.store.hashing import sha256_of_file
from pipeline.store.own_files import reading
from pipeline.store.shards.format import ShardError
from pipeline.store.wording import counted

_BYTES_AT_ONCE = 1 << 24
_NAMES_SHOWN = 5

Log = Callable[[str], object]


def open_groups(path: Path, dataset: str, log: Log) -> "GroupFeatures":
    """Open a file after another process has read all of it; `log` receives what is left out."""
    require_unbroken_groups(path, _read_all, dataset)
    return GroupFeatures(path, dataset, log)


def datasets_by_group(file: h5py.File, dataset: str, log: Log) -> dict[str, h5py.Dataset]:
    """Return the datasets of a name by group, in name order.

    Links are not followed. They, groups that lack the dataset and have no others below, as an
    interrupted program leaves them, and datasets next to groups are logged.
    """
    path = Path(file.filename)
    datasets: dict[str, h5py.Dataset] = {}
    left_out: dict[str, list[str]] = {}

    def visit(group: h5py.Group, name: str, above: frozenset[int]) -> None:
        innermost = True
        others: list[str] = []
        for key in group:
            below = f"{name}/{key}" if name else key
            is_link = not isinstance(group.get(key, getlink=True), h5py.HardLink)
            item = None if is_link else group[key]
            address = -1 if item is None else h5py.h5o.get_info(item.id).addr
            if item is None or address in above:
                left_out.setdefault("link", []).append(below)
            elif isinstance(item, h5py.Group):
                innermost = False
                visit(item, below, above | {address})
            elif isinstance(item, h5py.Dataset) and key == dataset and name:
                if item.is_virtual or item.external:
                    raise ShardError(f"{path}: {below!r} is stored in other files; import those")
                datasets[name] = item
            else:
                others.append(below)
        if innermost and name and name not in datasets:
            left_out.setdefault(f"group without a dataset {dataset!r}", []).append(name)
        elif others and name not in datasets:
            left_out.setdefault("dataset next to groups", []).extend(others)

    visit(file, "", frozenset([h5py.h5o.get_info(file["/"].id).addr]))
    for what, names in left_out.items():
        noun, _, rest = what.partition(" ")
        what = " ".join(filter(None, (counted(len(names), noun), rest)))
        log(f"{path}: left out {what}, first {sorted(names)[:_NAMES_SHOWN]}")
    return datasets


def _ignore(line: str) -> None:
    """Log nothing: another process reads the file first, and this one logs."""


def _read_all(path: Path, dataset: str) -> None:
    features = GroupFeatures(path, dataset)
    row_bytes = int(np.prod(features.row_shape)) * features.dtype.itemsize
    step = max(1, _BYTES_AT_ONCE // max(1, row_bytes))
    for start in range(0, len(features.ids), step):
        features.read(start, min(start + step, len(features.ids)))


class GroupFeatures:
    """Groups named by image path, each with a dataset of the same shape: an `ImportSource`.

    Rows are in HDF5's name order, alphabetical by path component.
    """

    layout = "hdf5-groups"

    def __init__(self, path: Path, dataset: str = "global_descriptor", log: Log = _ignore) -> None:
        """Find all groups with the dataset, and check that its shape is constant."""
        self.file: str = path.name
        self._path, self._dataset = path, dataset
        with self._reading(), h5py.File(path, "r") as file:
            datasets = {
                group: (require_held(item).shape, item.dtype)
                for group, item in datasets_by_group(file, dataset, log).items()
            }
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
