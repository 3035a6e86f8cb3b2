"""The HDF5 layout of a shard as data: each dataset and attribute is defined only here.

`COLUMNS` is version 1 of the format; another version is another tuple. The order of datasets and
attributes is part of the layout, since it determines the bytes of the file. docs/format.md
specifies the layout for readers without this package.
"""

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from pipeline.store.columns import TEXT, Column, create
from pipeline.store.shards.format import SOURCE_CRC32, FeatureHeader

FEATURES = "features"
IDS, STATUS, ERROR = "ids", "status", "error"
CRC32 = "crc32"

COLUMNS = (
    Column(
        FEATURES, "<f4", ("rows", ...),  # or float16
        "one row per image or caption; NaN where the row failed",
    ),
    Column(IDS, TEXT, ("rows",), "ids of the dataset's manifest; captions are `<image id>#<k>`"),
    Column(STATUS, "|u1", ("rows",), "0 ok, 1 unreadable, 2 missing, 3 refused"),
    Column(ERROR, TEXT, ("rows",), "why a row failed, else empty", "errors"),
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


def stored_dtype(header: FeatureHeader) -> np.dtype:
    """Return the dtype of the stored features, little-endian on every machine."""
    return np.dtype(header.dtype).newbyteorder("<")
