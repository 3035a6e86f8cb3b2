"""Datasets of HDF5 files as data: a file is written, read and checked by its columns.

A format is a tuple of `Column`: shards in `store/shards/layout.py`, embedding files in
`retrieval/embedding_file.py`, localization files in `regions/localization/localized.py`. Datasets
are created in the order of the tuple, which determines the bytes of a file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from pipeline.store.files import require_held
from pipeline.store.packed import PackedTexts

TEXT = "text"
"""The dtype of UTF-8 texts of any length."""

Axis = str | int | EllipsisType

# What a reader accepts for a dtype, unless `kinds` or `exact` state it: the same kind of any width.
_KINDS = {"f": "f", "u": "iu", "i": "iu", "b": "b", "O": "O"}
_NAMES = {"f": "floats", "iu": "whole numbers", "b": "booleans", "O": "texts"}
_TEXTS_AT_ONCE = 1 << 16
# Texts of one length are written and read in parts of this size, which are also their chunks.
_FIXED_BYTES = 1 << 20
# Lengths are multiples of this, so that files with similar texts have one type.
_LENGTHS = 16


@dataclass(frozen=True, slots=True)
class Column:
    """A dataset of a file."""

    name: str
    """Path in the file."""
    dtype: str
    """`TEXT`, or a numpy dtype, little-endian on every machine."""
    axes: tuple[Axis, ...]
    """Lengths; an axis of the same name has the same length in all columns, `...` is any axes."""
    meaning: str
    attribute: str = ""
    """Name of its values in Python; default: `name`."""
    fill: Any = None
    """Value of rows for which it is not known; None: every row has one."""
    optional: bool = False
    """Whether the dataset is missing from files in which all rows have the `fill`."""
    exact: bool = False
    """Whether other widths of the dtype are refused."""
    kinds: str = ""
    """numpy's kinds of dtypes that are read, if others than that of `dtype`."""
    sparse: bool = False
    """Whether most texts are empty; those of one length are compressed then."""

    @property
    def key(self) -> str:
        """Name of the values in Python."""
        return self.attribute or self.name

    def filled(self, rows: int) -> Any:
        """Return initial values of rows: a list of texts, or an array (rows,)."""
        return [""] * rows if self.dtype == TEXT else np.full(rows, self.fill or 0, self.dtype)


def create(
    file: h5py.File, column: Column, shape: Sequence[int], dtype: Any = None, **options: Any
) -> h5py.Dataset:
    """Create the empty dataset of a column; `dtype` if its width depends on the file."""
    kind = dtype or (h5py.string_dtype() if column.dtype == TEXT else np.dtype(column.dtype))
    return file.create_dataset(column.name, tuple(shape), kind, track_times=False, **options)


def write(
    file: h5py.File, columns: Iterable[Column], values: Mapping[str, Any], fixed: bool = False
) -> None:
    """Write columns of values by `key`: texts, of one length if `fixed`, or an array each."""
    for column in columns:
        rows = values[column.key]
        if column.optional and (rows == column.fill).all():
            continue
        if column.dtype == TEXT and fixed:
            _write_fixed(file, column, rows)
        elif column.dtype == TEXT:
            dataset = create(file, column, (len(rows),))
            # In parts: a list of all texts needs several times their memory.
            for start in range(0, len(rows), _TEXTS_AT_ONCE):
                dataset[start : start + _TEXTS_AT_ONCE] = list(rows[start : start + _TEXTS_AT_ONCE])
        else:
            create(file, column, rows.shape, data=rows)


def _write_fixed(file: h5py.File, column: Column, texts: Sequence[str]) -> None:
    """Write texts as UTF-8 of one length, padded by NUL: readers of other programs find them."""
    longest = max((len(text.encode()) for text in texts), default=0)
    length = -(-longest // _LENGTHS) * _LENGTHS or 1
    step = max(1, min(len(texts), _FIXED_BYTES // length))
    # One long text must not cost its length in every row.
    packed = {"chunks": (step,), "compression": "gzip"} if column.sparse and longest else {}
    dtype = h5py.string_dtype("utf-8", length)
    dataset = create(file, column, (len(texts),), dtype, **packed)
    for start in range(0, len(texts), step):
        part = [text.encode() for text in texts[start : start + step]]
        dataset[start : start + step] = np.array(part, dtype)
    # Now, not when the last reference ends: a profiler, such as Dask's, may hold one for a while,
    # and the place of the chunks in the file would depend on it.
    dataset.flush()


def own_dataset(
    file: h5py.File, column: Column, sizes: dict[str, int] | None = None
) -> h5py.Dataset:
    """Return the dataset of a column, stored inside this file, of its dtype and shape.

    `sizes` are the lengths of the axes so far, to which those of this column are added.
    """
    dataset: Any = file
    # An external or virtual dataset could expose any file that the reader may open. Check the links
    # first: resolving a target would open it.
    for name in column.name.split("/"):
        link = dataset.get(name, getlink=True) if isinstance(dataset, h5py.Group) else None
        if link is None:
            names = ", ".join(file) or "nothing"
            raise ValueError(f"dataset {column.name!r} is missing; the file has {names}")
        if not isinstance(link, h5py.HardLink):
            dataset = None
            break
        dataset = dataset[name]
    elsewhere = isinstance(dataset, h5py.Dataset) and (dataset.is_virtual or dataset.external)
    if dataset is None or elsewhere:
        raise ValueError(
            f"{column.name!r} is stored in other files, as in a view of shards; read those, or "
            "copy its rows into this file"
        )
    require_held(dataset)
    kind = "O" if h5py.check_string_dtype(dataset.dtype) is not None else dataset.dtype.kind
    expected = np.dtype("O" if column.dtype == TEXT else column.dtype)
    kinds = column.kinds or _KINDS[expected.kind]
    shape = _shape_of(column.axes, dataset.shape or (), {} if sizes is None else sizes)
    other = dataset.dtype != expected if column.exact else kind not in kinds
    if other or dataset.shape != shape:
        named = expected if column.exact else _NAMES[_KINDS[expected.kind]]
        axes = " and one for ".join("..." if axis is ... else str(axis) for axis in column.axes)
        raise ValueError(
            f"{column.name!r} is {dataset.dtype} of shape {dataset.shape}, expected {named} of "
            f"shape {shape}, an axis for {axes}"
        )
    return dataset


def _shape_of(
    axes: tuple[Axis, ...], found: tuple[int, ...], sizes: dict[str, int]
) -> tuple[int | str, ...]:
    """Return the expected shape; new axes have the lengths found."""
    if ... in axes:
        at = axes.index(...)
        inner = found[at : len(found) - (len(axes) - at - 1)]
        axes = (*axes[:at], *inner, *axes[at + 1 :])
    for axis, length in zip(axes, found, strict=False):
        if isinstance(axis, str):
            sizes.setdefault(axis, length)
    return tuple(sizes.get(axis, axis) if isinstance(axis, str) else axis for axis in axes)  # type: ignore[misc]


def texts_of(dataset: h5py.Dataset) -> PackedTexts:
    """Return the texts of a column, or its numbers as texts; invalid UTF-8 raises a ValueError."""
    if dataset.dtype.kind in "iu":
        return PackedTexts(map(str, dataset[...]))
    step = max(1, min(_TEXTS_AT_ONCE, _FIXED_BYTES // dataset.dtype.itemsize))
    parts = (dataset.asstr("utf-8")[at : at + step] for at in range(0, len(dataset), step))
    return PackedTexts(text for part in parts for text in part)


def read(
    file: h5py.File, columns: Iterable[Column], sizes: dict[str, int] | None = None
) -> dict[str, Any]:
    """Return the values of columns by `key`: `PackedTexts`, or arrays in their stored dtype."""
    sizes = {} if sizes is None else sizes
    values: dict[str, PackedTexts | npt.NDArray[Any] | list[str]] = {}
    for column in columns:
        if column.optional and column.name not in file:
            values[column.key] = column.filled(sizes[str(column.axes[0])])
            continue
        dataset = own_dataset(file, column, sizes)
        values[column.key] = texts_of(dataset) if column.dtype == TEXT else dataset[()]
    return values
