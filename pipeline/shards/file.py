"""Reading one shard: its structure, its rows, and every byte of it checked."""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline.canonical import canonical_json, sha256_of_file
from pipeline.shards.format import (
    FORMAT,
    OK,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardEntry,
    ShardError,
)

_READ_ROWS_BYTES = 1 << 24


class ShardFile:
    """One shard opened for reading.

    Opening checks the structure; `inspect` checks every byte. The file is closed between
    calls and rows are memory-mapped where the layout allows, so that an object can be used
    after a fork and in data loader workers.

    Attributes
    ----------
    attributes : the HDF5 attributes, strings and integers.
    ids : row ids in order. status : (rows,) uint8. errors : texts.
    crc32 : (rows,) uint32 of each stored row's bytes.
    source_crc32 : (rows,) uint32 of what each row was made from; 0 where that is not known.
    row_shape, dtype : of one row.
    """

    def __init__(self, path: Path) -> None:
        """Read everything but the features.

        Raises
        ------
        DamagedShard
            No readable HDF5 file, or a dataset or attribute is missing or of a wrong length.
        """
        self.path = path
        try:
            with h5py.File(path, "r") as file:
                self.attributes = {
                    k: v if isinstance(v, str) else int(v) for k, v in file.attrs.items()
                }
                self.ids: list[str] = list(file["ids"].asstr()[()])
                self.errors: list[str] = list(file["error"].asstr()[()])
                self.status: np.ndarray = file["status"][()]
                self.crc32: np.ndarray = file["crc32"][()]
                self.source_crc32: np.ndarray = file["source_crc32"][()]
                features = file["features"]
                self.row_shape: tuple[int, ...] = features.shape[1:]
                self.dtype: np.dtype = features.dtype
                self.rows: int = features.shape[0]
                self._offset: int | None = features.id.get_offset()
            needed = {"format", "recipe", "recipe_hash", "weights", "weights_sha256", "axes"}
            if absent := sorted(needed - self.attributes.keys()):
                raise KeyError(f"attributes {absent} are missing")
            columns = (self.ids, self.errors, self.status, self.crc32, self.source_crc32)
            lengths = {len(column) for column in columns}
            if lengths != {self.rows}:
                raise ValueError(f"{self.rows} feature rows, but columns of {sorted(lengths)}")
            if self.attributes["format"] != FORMAT:
                raise ValueError(f"format is {self.attributes['format']!r}, not {FORMAT!r}")
        except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            _refuse_unreadable(path, error)
            raise DamagedShard(
                f"{path} is no sound feature shard ({error}); copy it again from its source, or "
                "run the command that made it again: it re-makes just this shard"
            ) from error

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return stored rows (len(rows), *row_shape), each checked against its CRC-32.

        Raises
        ------
        DamagedShard
            A row's bytes are not those that were written; the row's id is named.
        """
        try:
            if self._offset is not None:
                stored = self._mapped()[rows]
            else:
                with h5py.File(self.path, "r") as file:
                    dataset = file["features"]
                    stored = np.empty((len(rows), *self.row_shape), self.dtype)
                    for position, row in enumerate(rows):
                        dataset.read_direct(stored, np.s_[int(row)], np.s_[position])
        except (OSError, ValueError) as error:
            _refuse_unreadable(self.path, error)
            raise DamagedShard(
                f"{self.path}: features cannot be read ({error}); copy the file again or run the "
                "command that made it again"
            ) from error
        for position, row in enumerate(rows):
            if zlib.crc32(stored[position]) != self.crc32[row]:
                raise DamagedShard(
                    f"{self.path}: row {int(row)}, id {self.ids[row]!r}, is not what was written "
                    "(CRC-32 differs); copy the file again or run the command that made it again"
                )
        return stored

    def blocks(self) -> Iterator[RowBlock]:
        """Yield all rows in order, checked, a bounded number of bytes at a time."""
        step = max(1, _READ_ROWS_BYTES // max(1, int(np.prod(self.row_shape)) * 4))
        for start in range(0, self.rows, step):
            rows = np.arange(start, min(start + step, self.rows))
            yield RowBlock(
                self.read_rows(rows),
                self.status[rows],
                tuple(self.errors[r] for r in rows),
                self.source_crc32[rows],
            )

    def inspect(self, first_row: int) -> ShardEntry:
        """Read every byte, check it, and return the shard's line of the index.

        The content hash covers ids, status, errors and features, and so does not change with
        the HDF5 version or with compression.

        Raises
        ------
        DamagedShard
            A row differs from its CRC-32, or NaN and status do not agree.
        """
        content = hashlib.sha256()
        content.update(canonical_json(self.ids).encode())
        content.update(self.status.tobytes())
        content.update(canonical_json(self.errors).encode())
        for block in self.blocks():
            nan = np.isnan(block.features.reshape(len(block), -1))
            if (nan.any(axis=1) != (block.status != OK)).any():
                raise DamagedShard(
                    f"{self.path}: NaN rows and failed rows are not the same rows; run the command "
                    "that made it again"
                )
            content.update(block.features.tobytes())
        return ShardEntry(
            file=self.path.name,
            first_row=first_row,
            rows=self.rows,
            failed_rows=int((self.status != OK).sum()),
            sha256=sha256_of_file(self.path),
            content_sha256=content.hexdigest(),
        )

    def require(self, header: FeatureHeader, ids: Sequence[str]) -> None:
        """Check that the shard holds just these rows of just these features.

        The software's versions are not compared: features of another version of torch are
        still features of this recipe.

        Raises
        ------
        OtherShard
            The first thing that differs is named.
        """
        for name, wanted in header.attributes().items():
            found = self.attributes.get(name)
            if name != "created_by" and found != wanted:
                raise OtherShard(difference(self.path, name, found, wanted))
        if (self.row_shape, self.dtype) != (header.row_shape, np.dtype(header.dtype)):
            raise OtherShard(
                f"{self.path} holds rows of {self.row_shape} {self.dtype}, not "
                f"{header.row_shape} {header.dtype}"
            )
        if list(ids) != self.ids:
            raise OtherShard(
                f"{self.path} holds {self.rows} rows from id {self.ids[:1]}, not the {len(ids)} "
                f"asked for from id {list(ids[:1])}"
            )

    def _mapped(self) -> np.ndarray:
        return np.memmap(
            self.path, self.dtype, "r", self._offset or 0, (self.rows, *self.row_shape)
        )


def _refuse_unreadable(path: Path, error: Exception) -> None:
    """Raise if the system would not let the file be read: that says nothing of its contents."""
    if isinstance(error, OSError) and error.errno is not None:
        raise ShardError(
            f"{path} cannot be read ({os.strerror(error.errno)}); check its permissions and the "
            "disk; nothing was changed"
        ) from error


def difference(path: Path, name: str, found: Any, wanted: Any) -> str:
    """Say in which attribute, or in which fields of the recipe, a path differs from the asked."""
    if name != "recipe" or not isinstance(found, str):
        return f"{path} has {name} {found!r}, not {wanted!r}"
    try:
        old, new = json.loads(found), json.loads(wanted)
        fields = [f"{k} {old.get(k)!r} (asked for: {new.get(k)!r})" for k in sorted({*old, *new})
                  if old.get(k) != new.get(k)]  # fmt: skip
    except (ValueError, AttributeError):
        fields = []
    return f"{path} holds features of another recipe: {'; '.join(fields) or found}"
