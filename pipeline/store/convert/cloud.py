"""Zarr groups and Lance tables: folders of objects, which a bucket can hold."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.datasets.manifest import Manifest
from pipeline.store.builder.locking import only_writer, work_file
from pipeline.store.convert.tables import table_batches
from pipeline.store.extras import require
from pipeline.store.files import OutputError, require_folder
from pipeline.store.progress import Progress
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.layout import CRC32, ERROR, FEATURES, IDS, STATUS, axis_names
from pipeline.store.shards.writer import explained

_CHUNK_BYTES = 1 << 22
_ROWS_PER_CHUNK = 1 << 16  # of columns


def export_zarr(
    features: FeatureSet,
    out: Path,
    ids: Sequence[str],
    allow_failed: bool,
    progress: Progress,
) -> None:
    """Write a Zarr group, version 3, with the columns of a shard as arrays, and its attributes."""
    zarr = require("zarr", "`to=zarr` needs")
    header, rows = features.index.header, features.rows_to_read(ids, allow_failed)
    columns: dict[str, Any] = {
        IDS: np.array(list(ids), np.dtypes.StringDType()),
        STATUS: features.status[rows],
        ERROR: np.array([features.errors[row] for row in rows], np.dtypes.StringDType()),
        CRC32: features.crc32[rows],
        **{name: values[rows] for name, values in features.sources.items()},
    }
    axes = axis_names(header) or None
    size = max(1, min(len(rows), _CHUNK_BYTES // header.row_bytes))
    with _appearing_folder(out, len(rows) * header.row_bytes) as part:
        group = zarr.create_group(part, zarr_format=3, attributes=header.attributes())
        array = group.create_array(
            FEATURES,
            shape=(len(rows), *header.row_shape),
            chunks=(size, *header.row_shape),
            dtype=header.dtype,
            fill_value=np.nan,
            compressors=None,  # floats hardly become smaller
            dimension_names=axes,
        )
        for start in range(0, len(rows), size):
            here = slice(start, start + size)
            array[here] = features.read_rows(rows[here])
            progress(min(start + size, len(rows)), len(rows), 0)
        for name, values in columns.items():
            chunk = (max(1, min(len(rows), _ROWS_PER_CHUNK)),)
            of_rows = axes and axes[:1]
            group.create_array(name, data=values, chunks=chunk, dimension_names=of_rows)


def export_lance(
    features: FeatureSet,
    out: Path,
    ids: Sequence[str],
    dataset: Manifest | None,
    allow_failed: bool,
    progress: Progress,
) -> None:
    """Write a Lance table with the columns of `export_table`."""
    lance = require("lance", "`to=lance` needs")
    schema, batches = table_batches(features, ids, dataset, allow_failed, progress)
    with _appearing_folder(out, len(ids) * features.index.header.row_bytes) as part:
        lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), str(part))


@contextmanager
def _appearing_folder(out: Path, size: int) -> Iterator[Path]:
    """Yield a folder in the work folder, which appears as `out` once it is complete."""
    require_folder(out)
    if out.exists():
        raise OutputError(f"{out} exists; delete it, or choose another output")
    part = work_file(out, ".export")
    with only_writer(work_file(out, ".lock"), out), explained(out, size):
        shutil.rmtree(part, ignore_errors=True)
        try:
            yield part
            part.rename(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
