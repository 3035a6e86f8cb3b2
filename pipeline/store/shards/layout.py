"""The HDF5 layout of a shard as data: each dataset and attribute is defined only here.

Both versions of the format have these columns; they differ in the storage of texts, and in the
dimension scales of version 2. The order of datasets and attributes is part of the layout, since it
determines the bytes of the file. docs/format.md specifies the layout for readers without this
package.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from pipeline.store import columns
from pipeline.store.columns import TEXT, Column, create
from pipeline.store.shards.format import SOURCE_CRC32, FeatureHeader, names_in

FEATURES = "features"
IDS, STATUS, ERROR = "ids", "status", "error"
CRC32 = "crc32"

COLUMNS = (
    Column(
        FEATURES, "<f4", ("rows", ...),  # or float16
        "one row per image or caption; NaN where the row failed",
    ),
    Column(
        IDS, TEXT, ("rows",),
        "images: ids of the dataset's manifest, or paths; captions: `<image id>#<k>`; regions: "
        "`<image id>@<k>`; phrases: a hash of the text",
    ),
    Column(STATUS, "|u1", ("rows",), "0 ok, 1 unreadable, 2 missing, 3 refused"),
    Column(ERROR, TEXT, ("rows",), "why a row failed, else empty", "errors", sparse=True),
    Column(CRC32, "<u4", ("rows",), "CRC-32 of the bytes of each row of `features`"),
    Column(
        SOURCE_CRC32, "<u4", ("rows",),
        "CRC-32 of the row's source: an image file's bytes, a caption's UTF-8 text; 0: not known, "
        "or no file",
        fill=0,
    ),
)  # fmt: skip
"""The datasets of a shard, in the order of their creation.

Those with a `fill` describe the source of a row. Any of them is carried from a `RowBlock` into
shards, merged and concatenated sets and exports. A new one is one more entry here, with `fill` and
`optional=True`: without `optional`, all older shards count as damaged. Finished sets keep the fill
until their rows are recomputed.
"""

SHARD, SHARDS, ROWS = "shard", "shards", "rows"

REQUIRED_TEXTS = ("format", "recipe", "recipe_hash", "weights", "weights_sha256", "axes")
"""Required attributes of a shard."""

_CHUNK_BYTES = 1 << 16
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."


def row_columns() -> tuple[Column, ...]:
    """Return the columns with one value per row: all but the features."""
    return tuple(column for column in COLUMNS if column.name != FEATURES)


def source_columns() -> tuple[Column, ...]:
    """Return the columns that describe the source of a row, where it is known."""
    return tuple(column for column in row_columns() if column.fill is not None)


def write_attributes(file: h5py.File, attributes: Mapping[str, Any]) -> None:
    """Write the attributes of a shard or of a view of shards."""
    for name, value in attributes.items():
        file.attrs[name] = value


def write_rows(file: h5py.File, header: FeatureHeader, values: Mapping[str, Any]) -> None:
    """Write all columns but the features, which exist; in version 2 also the dimension scales."""
    columns.write(file, row_columns(), values, fixed=header.format_version > 1)
    if header.format_version > 1 and (axes := axis_names(header)):
        _name_axes(file, axes)


def axis_names(header: FeatureHeader) -> tuple[str, ...]:
    """Return the names of the axes of the features; () unless all can be names of datasets."""
    axes, taken = names_in(header.axes), {column.name for column in COLUMNS}
    usable = len({*axes} - taken) == len(axes) == len(header.row_shape) + 1
    return axes if usable and all(name.isidentifier() for name in axes) else ()


def _name_axes(file: h5py.File, axes: Sequence[str]) -> None:
    """Attach a dimension scale to each axis of the columns."""
    # Of netCDF-4, for a dimension without a variable: no values are stored.
    of_columns = [(file[FEATURES], axes)]
    of_columns += [(file[c.name], axes[:1]) for c in row_columns() if c.name in file]
    for number, (name, length) in enumerate(zip(axes, file[FEATURES].shape, strict=True)):
        scale = file.create_dataset(name, (length,), ">f4", track_times=False)
        scale.make_scale(f"{_NO_VARIABLE}{length:10d}")
        scale.attrs["_Netcdf4Dimid"] = np.int32(number)  # by which VirtualiZarr knows it
    for dataset, names in of_columns:
        for dimension, name in zip(dataset.dims, names, strict=True):
            dimension.attach_scale(file[name])


def create_features(
    file: h5py.File, header: FeatureHeader, rows: int, compress: bool
) -> h5py.Dataset:
    """Create the empty dataset of `rows` features, contiguous (memory-mappable) or in chunks."""
    options: dict[str, Any] = {}
    if compress:
        # Filters that every HDF5 build can read.
        chunk = max(1, min(rows, _CHUNK_BYTES // max(1, header.row_bytes)))
        options = {
            "chunks": (chunk, *header.row_shape),
            "compression": "gzip",
            "compression_opts": 1,
            "shuffle": True,
            "fletcher32": True,
        }
    shape = (rows, *header.row_shape)
    return create(file, COLUMNS[0], shape, stored_dtype(header), **options)


def not_finite(rows: np.ndarray) -> np.ndarray:
    """Return whether each stored row (n, ...) has an infinity or a NaN, (n,) bool."""
    return (
        _above(rows, 0x7C00 - 1) if rows.dtype.itemsize == 2 else ~np.isfinite(_flat(rows)).all(1)
    )


def out_of_range(given: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Return whether each row (n, ...) lost its numbers: infinities, or zeros for all of them."""
    return not_finite(stored) | (_flat(given).any(axis=1) & ~_flat(stored).any(axis=1))


def with_nan(rows: np.ndarray) -> np.ndarray:
    """Return whether each stored row (n, ...) has a NaN, (n,) bool."""
    if rows.dtype.itemsize == 2:
        return _above(rows, 0x7C00)
    return np.isnan(_flat(rows)).any(axis=1)


def _above(rows: np.ndarray, most: int) -> np.ndarray:
    # The bits of a float16 without its sign: numpy converts each value to float32 first.
    bits: np.ndarray = _flat(rows).view("<u2") & 0x7FFF
    return bits.max(axis=1, initial=0) > most


def _flat(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1)


def stored_dtype(header: FeatureHeader) -> np.dtype:
    """Return the dtype of the stored features, little-endian on every machine."""
    return np.dtype(header.dtype).newbyteorder("<")
