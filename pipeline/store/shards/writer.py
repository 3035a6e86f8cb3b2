"""Writing one shard atomically as an HDF5 file."""

import io
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline.store.files import appearing_whole
from pipeline.store.hashing import crc32
from pipeline.store.shards.format import OK, FeatureHeader, RowBlock, ShardError, StoredBlock
from pipeline.store.shards.layout import (
    CRC32,
    IDS,
    ROWS,
    SHARD,
    SHARDS,
    STATUS,
    create_features,
    not_finite,
    row_columns,
    stored_dtype,
    write_attributes,
    write_rows,
)


def stored_rows(header: FeatureHeader, block: RowBlock, ids: Sequence[str]) -> np.ndarray:
    """Return a block's features as stored: little-endian, finite, NaN where a row failed."""
    if block.features.shape[1:] != header.row_shape or len(block.features) != len(ids):
        raise ShardError(
            f"found features of shape {block.features.shape}, expected {len(ids)} rows of shape "
            f"{header.row_shape}"
        )
    given: dict[str, Sized] = {"status": block.status, "errors": block.errors, **block.sources}
    lengths = [len(values) for values in given.values()]
    if set(lengths) != {len(ids)}:
        raise ShardError(
            f"found {', '.join(given)} of {lengths} rows, expected {len(ids)} rows from {ids[:1]}"
        )
    with np.errstate(over="ignore"):
        stored = block.features.astype(stored_dtype(header), order="C")
    stored[block.status != OK] = np.nan
    wrong = [ids[i] for i in np.flatnonzero(not_finite(stored) & (block.status == OK))[:5]]
    if wrong:
        raise ShardError(
            f"features of {wrong} hold infinities or NaN as {header.dtype}; store float32, use a "
            "wider precision, or check the weights"
        )
    return stored


def stored_block(header: FeatureHeader, block: RowBlock, ids: Sequence[str]) -> StoredBlock:
    """Convert a block to its stored form; a `StoredBlock` is returned unchanged."""
    if isinstance(block, StoredBlock):
        return block
    stored = stored_rows(header, block, ids)
    checksums = np.array([crc32(row) for row in stored], np.uint32)
    # A text of HDF5 ends at NUL, and a reason that cannot be stored must not end the run.
    errors = tuple(error.replace("\0", "\\0") for error in block.errors)
    return StoredBlock(
        stored, block.status, errors, block.source_crc32, block.other_sources, crc32=checksums
    )


def write_shard(
    path: Path,
    header: FeatureHeader,
    ids: Sequence[str],
    blocks: Iterable[RowBlock],
    shard: int,
    shards: int,
    compress: bool = False,
) -> None:
    """Write shard `shard` of `shards` atomically, from blocks of its rows in order."""
    # `compress`: small gzip chunks with fletcher32, which are smaller and slower to read at random,
    # instead of one contiguous block that can be memory-mapped.
    rows = len(ids)
    with (
        explained(path, rows * header.row_bytes),
        appearing_whole(path) as part,
        PatientFile(part, "w+") as stream,
        h5py.File(stream, "w", libver="earliest") as file,
    ):
        write_attributes(file, header.attributes() | {SHARD: shard, SHARDS: shards, ROWS: rows})
        features = create_features(file, header, rows, compress)
        values = {column.key: column.filled(rows) for column in row_columns()} | {IDS: ids}
        row = 0
        for block in blocks:
            stop = row + len(block)
            stored = stored_block(header, block, ids[row:stop])
            features[row:stop] = stored.features
            values["errors"][row:stop] = stored.errors
            arrays = {STATUS: stored.status, CRC32: stored.crc32, **stored.sources}
            for name, array in arrays.items():
                values[name][row:stop] = array
            row = stop
            stream.require_written()
        if row != rows:
            raise ShardError(f"{path}: found {row} rows, expected {rows}, one per id")
        write_rows(file, header, values)
        # HDF5 writes its metadata on closing, before the check and before the rename.
        file.close()
        stream.require_written()


class PatientFile(io.FileIO):
    """A file that stores its first write error until `require_written`."""

    # HDF5 may crash the process if a write fails while it closes a file. Writes therefore appear to
    # succeed, and the error is raised after HDF5 has returned.

    _error: OSError | None = None

    def readinto(self, buffer: Any) -> int:
        # HDF5 reads lengths and pointers of texts before it writes them. Where a write has failed,
        # it must find zeros, not what the memory held.
        view = memoryview(buffer).cast("B")
        size = super().readinto(view) or 0
        view[size:] = bytes(len(view) - size)
        return len(view)

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest and self._error is None:
            try:
                # A write is partial on a full disk, and above 2 GiB.
                rest = rest[super().write(rest) :]
            except OSError as error:
                self._error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0

    def require_written(self) -> None:
        """Raise the first write error."""
        if self._error is not None:
            raise self._error


@contextmanager
def with_room(path: Path, needed: int) -> Iterator[Path]:
    """Yield a temporary file for about `needed` bytes of HDF5, preallocated on disk."""
    # On a full disk h5py raises for each object that it closes, or crashes.
    with explained(path, needed), appearing_whole(path) as part:
        with part.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, needed)
        yield part


@contextmanager
def explained(path: Path, needed: int | None = None) -> Iterator[None]:
    """Translate errors of the disk or h5py while `path`, of `needed` bytes, is written."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
        size = "" if needed is None else f" of {needed:,} bytes"
        raise ShardError(
            f"{path.name}{size} could not be written in {path.parent} "
            f"({str(error).splitlines()[0]}); {free:,} bytes are free there. Finished rows are "
            "kept: free some space, or raise the file size limit, and rerun the command to resume"
        ) from error
