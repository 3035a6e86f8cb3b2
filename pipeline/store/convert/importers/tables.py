"""Features in one array or column, and ids in another: HDF5, Parquet and safetensors."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from safetensors import safe_open

from pipeline.store.convert.importers.source import require_floats, require_unbroken_groups
from pipeline.store.files import require_held
from pipeline.store.hashing import sha256_of_file
from pipeline.store.own_files import reading
from pipeline.store.schema import decode_given
from pipeline.store.shards.format import ShardError
from pipeline.store.wording import counted

ID_COLUMNS = ("id", "ids", "image_id", "image_ids", "image_path", "key", "path", "filename", "name")
"""Names of columns of ids; the first that a file has is used."""

_FEATURES = "features"


class Found(NamedTuple):
    """An array of rows, and the ids of its file, if it has any."""

    shape: tuple[int, ...]
    dtype: np.dtype
    ids: Sequence[str] | None
    read: Callable[[int, int], np.ndarray]
    where: Callable[[int], str]
    left_out: Sequence[str] = ()  # names, of a file with one dataset per image


class TableFeatures:
    """Rows and ids of one file: an `ImportSource`."""

    def __init__(
        self,
        path: Path,
        layout: str,
        array: str,
        ids: Sequence[str] | None,
        log: Callable[[str], object],
    ) -> None:
        """Find the array, by name or the only one, and its ids, unless they are given."""
        self.layout, self.file = layout, path.name
        with _opened(path, layout):
            if layout == "hdf5":
                require_unbroken_groups(path, _read_all, array)
            found = _FINDERS[layout](path, array)
        if found.left_out:
            log(
                f"{path}: left out {counted(len(found.left_out), 'name')} of links or data of "
                f"other files, first {found.left_out[:5]}"
            )
        if len(found.shape) < 2:
            raise ShardError(f"{found.where(0)}: found shape {found.shape}, expected (rows, dim)")
        if ids is None and found.ids is None:
            raise ShardError(
                f"{path} has no column of ids, expected one of {', '.join(ID_COLUMNS)}; pass them "
                "as a file (`ids=...`), one per line"
            )
        self.ids: Sequence[str] = found.ids or [] if ids is None else ids
        if len(self.ids) != found.shape[0]:
            raise ShardError(f"{path} has {found.shape[0]} rows, but there are {len(self.ids)} ids")
        self.row_shape, self.dtype = found.shape[1:], require_floats(found.dtype, str(path))
        self.sha256 = sha256_of_file(path)
        self._path, self._found, self.where = path, found, found.where

    def read(self, start: int, stop: int) -> np.ndarray:
        with _opened(self._path, self.layout):
            return self._found.read(start, stop)


@contextmanager
def _opened(path: Path, layout: str) -> Iterator[None]:
    with reading(path, f"a {layout} file of features", "check that it is complete", ShardError):
        yield


def ids_of_table(path: Path) -> list[str]:
    """Return the ids of a Parquet file, such as the metadata of clip-retrieval."""
    with _opened(path, "parquet"):
        names = _schema(path).names
        column = next((name for name in ID_COLUMNS if name in names), None)
        if column is None:
            raise ShardError(f"{path} has the columns {names}, none of {', '.join(ID_COLUMNS)}")
        values = pyarrow.parquet.read_table(path, columns=[column])[column]
        if values.null_count:
            raise ShardError(f"{path}: {values.null_count} of the column {column!r} are null")
        return _texts(values.to_pylist(), f"{path}, {column!r}")


def _schema(path: Path) -> pyarrow.Schema:
    schema = pyarrow.parquet.read_schema(path)
    if repeated := [name for name, count in Counter(schema.names).items() if count > 1]:
        raise ShardError(
            f"{path}: found {repeated[0]!r} more than once; expected different columns"
        )
    return schema


def _texts(values: Iterable[object], where: str) -> list[str]:
    """Return ids as texts: of texts, UTF-8 bytes, and whole numbers."""
    texts = [value.decode() if isinstance(value, bytes) else value for value in values]
    for row, value in enumerate(texts):
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ShardError(
                f"{where}, row {row}: the id is {value!r:.60}, expected a text or a whole number"
            )
    return list(map(str, texts))


def _in_hdf5(path: Path, array: str) -> Found:
    with h5py.File(path, "r") as file:
        every = dict(_datasets(file))
        own = {name: require_held(dataset) for name, dataset in every.items() if dataset}
        others = sorted({*every} - {*own})
        name = array or _FEATURES
        if linked := {name, *ID_COLUMNS} & {*others}:
            raise ShardError(
                f"{path}: {min(linked)!r} is a link, or stored in other files; write a copy"
            )
        if name in own:
            column = next((each for each in ID_COLUMNS if each in own), None)
            stored = None if column is None else own[column]
            ids = None if stored is None else _texts(stored[()].tolist(), f"{path}, {column!r}")
            return Found(
                own[name].shape, own[name].dtype, ids,
                lambda start, stop: _slice_of(path, name, start, stop),
                lambda row: f"{path}, {name!r}, row {row}",
            )  # fmt: skip
        shapes = {(dataset.shape, dataset.dtype) for dataset in own.values()}
        if array or len(shapes) != 1:
            raise ShardError(
                f"{path} has no dataset {name!r} but {sorted(own)[:9]}; name the one with the rows "
                "(`array=...`); or, for one dataset an image, all must have one shape"
            )
        ((shape, dtype),) = shapes
        names = sorted(own)

    def read(start: int, stop: int) -> np.ndarray:
        with h5py.File(path, "r") as file:
            return np.stack([file[name][()] for name in names[start:stop]])

    return Found(
        (len(names), *shape), dtype, names, read, lambda row: f"{path}, {names[row]!r}", others
    )  # fmt: skip


def _datasets(
    group: h5py.Group, name: str = "", above: frozenset[int] = frozenset()
) -> Iterator[tuple[str, h5py.Dataset | None]]:
    """Yield the datasets below a group by path; None for links and for data of other files."""
    above |= {h5py.h5o.get_info(group.id).addr}
    for key in group:
        below = f"{name}/{key}" if name else key
        is_link = not isinstance(group.get(key, getlink=True), h5py.HardLink)
        item = None if is_link else group[key]
        if isinstance(item, h5py.Group) and h5py.h5o.get_info(item.id).addr not in above:
            yield from _datasets(item, below, above)
        else:
            whole = isinstance(item, h5py.Dataset) and not (item.is_virtual or item.external)
            yield below, item if whole else None


def _slice_of(path: Path, name: str, start: int, stop: int) -> np.ndarray:
    with h5py.File(path, "r") as file:
        rows: np.ndarray = file[name][start:stop]
        return rows


def _read_all(path: Path, array: str) -> None:
    found = _in_hdf5(path, array)
    for start in range(0, found.shape[0], 64):
        found.read(start, min(start + 64, found.shape[0]))


def _in_parquet(path: Path, array: str) -> Found:
    schema = _schema(path)
    lists = [
        field.name
        for field in schema
        if (
            pyarrow.types.is_list(field.type)
            or pyarrow.types.is_large_list(field.type)
            or pyarrow.types.is_fixed_size_list(field.type)
        )
        and pyarrow.types.is_floating(field.type.value_type)
    ]
    name = array or (lists[0] if len(lists) == 1 else _FEATURES)
    if name not in lists:
        raise ShardError(
            f"{path} has the columns {schema.names}, of which {lists} are vectors of floats; name "
            "one (`array=...`)"
        )
    column = pyarrow.parquet.read_table(path, columns=[name])[name].combine_chunks()
    lengths = {*pyarrow.compute.list_value_length(column).to_pylist()}
    if len(lengths) != 1 or None in lengths:
        raise ShardError(f"{path}: vectors of {name!r} have the lengths {lengths}, expected one")
    values = column.flatten().to_numpy(zero_copy_only=False)
    rows = values.reshape(len(column), lengths.pop())
    ids = ids_of_table(path) if {*ID_COLUMNS} & {*schema.names} else None
    return Found(
        rows.shape, rows.dtype, ids, lambda start, stop: rows[start:stop],
        lambda row: f"{path}, {name!r}, row {row}",
    )  # fmt: skip


def _in_safetensors(path: Path, array: str) -> Found:
    with safe_open(path, "numpy") as file:
        names, about = sorted(file.keys()), file.metadata() or {}
        name = array or (names[0] if len(names) == 1 else _FEATURES)
        if name not in names:
            raise ShardError(f"{path} has the tensors {names[:9]}, not {name!r} (`array=...`)")
        rows = file.get_tensor(name)
    with path.open("rb") as header:  # safetensors reads the last one of a repeated name
        decode_given(header.read(int.from_bytes(header.read(8), "little")), dict[str, Any])
    ids = list(map(str, decode_given(about["ids"], list[str | int]))) if "ids" in about else None
    return Found(
        rows.shape, rows.dtype, ids, lambda start, stop: rows[start:stop],
        lambda row: f"{path}, {name!r}, row {row}",
    )  # fmt: skip


_FINDERS = {"hdf5": _in_hdf5, "parquet": _in_parquet, "safetensors": _in_safetensors}
