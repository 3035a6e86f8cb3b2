"""The HDF5 layout of a shard as data: names, dtypes, chunks and attributes are defined only here.

The creation order of attributes and datasets is part of the layout, since it determines the bytes
of the file. docs/format.md specifies the layout for readers without this package.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from pipeline.store.shards.format import FeatureHeader

FEATURES = "features"
IDS, STATUS, ERROR = "ids", "status", "error"
CRC32, SOURCE_CRC32 = "crc32", "source_crc32"

_TEXT, _CRC = h5py.string_dtype("utf-8"), np.dtype("<u4")

COLUMNS = {IDS: _TEXT, STATUS: np.dtype("u1"), ERROR: _TEXT, CRC32: _CRC, SOURCE_CRC32: _CRC}
"""Dtype of each dataset with one value per row."""

SHARD, SHARDS, ROWS = "shard", "shards", "rows"

REQUIRED_TEXTS = ("format", "recipe", "recipe_hash", "weights", "weights_sha256", "axes")
"""Required attributes of a shard."""

_CHUNK_BYTES = 1 << 16


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
    return file.create_dataset(FEATURES, shape, stored_dtype(header), track_times=False, **options)


def write_columns(file: h5py.File, columns: Mapping[str, np.ndarray | Sequence[str]]) -> None:
    """Write datasets of `COLUMNS`, in the order of the mapping."""
    for name, values in columns.items():
        file.create_dataset(name, data=values, dtype=COLUMNS[name], track_times=False)


def stored_dtype(header: FeatureHeader) -> np.dtype:
    """Return the dtype of the stored features, little-endian on every machine."""
    return np.dtype(header.dtype).newbyteorder("<")
