"""The feature shard as an HDF5 file: what is in it, how it is written, and how it is checked.

docs/format.md describes the same for readers who do not have this package.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline.canonical import appearing_whole, canonical_json, recipe_hash, sha256_of_file
from pipeline.errors import PipelineError

FORMAT = "pipeline-features"
FORMAT_VERSION = 1

OK, UNREADABLE, MISSING, REFUSED = 0, 1, 2, 3
STATUS_NAMES = {OK: "ok", UNREADABLE: "unreadable", MISSING: "missing", REFUSED: "refused"}

_STRING = h5py.string_dtype("utf-8")
_CHUNK_BYTES = 1 << 16
_READ_ROWS_BYTES = 1 << 24


class ShardError(PipelineError):
    """A shard, or a folder of them, is not what was asked for."""


class DamagedShard(ShardError):
    """A shard file is truncated, altered or incomplete."""


class OtherShard(ShardError):
    """A sound shard, but of another recipe, other weights or other rows."""


@dataclass(frozen=True)
class FeatureHeader:
    """What all shards of a feature set have in common.

    Attributes
    ----------
    recipe : JSON values that say everything that changes a feature.
    weights, weights_sha256 : name and SHA-256 of the network's weights or the word vectors.
    axes : names of the axes of `features`, such as "row, cell_y, cell_x, channel".
    dataset : name of the dataset that the rows belong to.
    row_shape, dtype : of one row; dtype is "float32" or "float16".
    created_by : software and versions.
    """

    recipe: dict[str, Any]
    weights: str
    weights_sha256: str
    axes: str
    dataset: str
    row_shape: tuple[int, ...]
    dtype: str
    created_by: str

    @property
    def recipe_hash(self) -> str:
        """16 hex digits that name the features; see `pipeline.canonical.recipe_hash`."""
        return recipe_hash(self.recipe, self.weights_sha256)

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def attributes(self) -> dict[str, Any]:
        """Return the HDF5 attributes that every shard carries, less the shard's own numbers."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "recipe": canonical_json(self.recipe),
            "recipe_hash": self.recipe_hash,
            "weights": self.weights,
            "weights_sha256": self.weights_sha256,
            "axes": self.axes,
            "dataset": self.dataset,
            "created_by": self.created_by,
        }


@dataclass(frozen=True)
class RowBlock:
    """Some finished rows, in order.

    Attributes
    ----------
    features : (n, *row_shape), any float dtype; rows with a status other than 0 are ignored.
    status : (n,) uint8.
    errors : n texts, empty where the status is 0.
    """

    features: np.ndarray
    status: np.ndarray
    errors: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.status)


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard's line in `index.json`."""

    file: str
    first_row: int
    rows: int
    failed_rows: int
    sha256: str
    content_sha256: str


def stored_rows(header: FeatureHeader, block: RowBlock, ids: Sequence[str]) -> np.ndarray:
    """Return a block's features as they are stored: little-endian, NaN where a row failed.

    Raises
    ------
    ShardError
        The shape is not the header's, or a row without an error is not finite once stored.
    """
    if block.features.shape[1:] != header.row_shape or len(block.features) != len(ids):
        raise ShardError(
            f"features of shape {block.features.shape} were given for {len(ids)} rows of shape "
            f"{header.row_shape}"
        )
    with np.errstate(over="ignore"):
        stored = block.features.astype(np.dtype(header.dtype).newbyteorder("<"), order="C")
    stored[block.status != OK] = np.nan
    finite = np.isfinite(stored.reshape(len(ids), -1)).all(axis=1)
    wrong = [ids[i] for i in np.flatnonzero(~finite & (block.status == OK))[:5]]
    if wrong:
        raise ShardError(
            f"features of {wrong} hold infinities or NaN as {header.dtype}; store float32, use a "
            "wider precision, or check the weights"
        )
    return stored


def write_shard(
    path: Path,
    header: FeatureHeader,
    ids: Sequence[str],
    blocks: Iterable[RowBlock],
    shard: int,
    shards: int,
    compress: bool = False,
) -> None:
    """Write one shard, whole or not at all.

    Parameters
    ----------
    path : final file name.
    header : attributes of the feature set.
    ids : the shard's row ids, in order.
    blocks : the rows in order; their lengths sum to `len(ids)`.
    shard, shards : this shard's number from 0, and how many there are.
    compress : gzip in small chunks with fletcher32 (smaller, slower to read at random) instead
        of one contiguous block that can be memory-mapped.
    """
    rows = len(ids)
    options: dict[str, Any] = {}
    if compress:
        chunk = max(1, min(rows, _CHUNK_BYTES // max(1, header.row_bytes)))
        options = {
            "chunks": (chunk, *header.row_shape),
            "compression": "gzip",
            "compression_opts": 1,
            "shuffle": True,
            "fletcher32": True,
        }
    with (
        appearing_whole(path) as part,
        h5py.File(part, "w", libver="earliest") as file,
    ):
        for name, value in header.attributes().items():
            file.attrs[name] = value
        file.attrs["shard"] = shard
        file.attrs["shards"] = shards
        file.attrs["rows"] = rows
        features = file.create_dataset(
            "features",
            (rows, *header.row_shape),
            np.dtype(header.dtype).newbyteorder("<"),
            track_times=False,
            **options,
        )
        status = np.empty(rows, np.uint8)
        crc32 = np.empty(rows, "<u4")
        errors: list[str] = []
        row = 0
        for block in blocks:
            stop = row + len(block)
            stored = stored_rows(header, block, ids[row:stop])
            features[row:stop] = stored
            status[row:stop] = block.status
            crc32[row:stop] = [zlib.crc32(one) for one in stored]
            errors.extend(block.errors)
            row = stop
        if row != rows:
            raise ShardError(f"{path}: {row} rows were given for {rows} ids")
        for name, data, dtype in (
            ("ids", list(ids), _STRING),
            ("status", status, np.uint8),
            ("error", errors, _STRING),
            ("crc32", crc32, "<u4"),
        ):
            file.create_dataset(name, data=data, dtype=dtype, track_times=False)


class ShardFile:
    """One shard opened for reading.

    Opening checks the structure; `inspect` checks every byte. The file is closed between
    calls and rows are memory-mapped where the layout allows, so that an object can be used
    after a fork and in data loader workers.

    Attributes
    ----------
    attributes : the HDF5 attributes, strings and integers.
    ids : row ids in order. status : (rows,) uint8. errors : texts.
    crc32 : (rows,) uint32 of each stored row's bytes. row_shape, dtype : of one row.
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
                features = file["features"]
                self.row_shape: tuple[int, ...] = features.shape[1:]
                self.dtype: np.dtype = features.dtype
                self.rows: int = features.shape[0]
                self._offset: int | None = features.id.get_offset()
            needed = {"format", "recipe", "recipe_hash", "weights", "weights_sha256", "axes"}
            if absent := sorted(needed - self.attributes.keys()):
                raise KeyError(f"attributes {absent} are missing")
            lengths = {len(self.ids), len(self.errors), len(self.status), len(self.crc32)}
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
                self.read_rows(rows), self.status[rows], tuple(self.errors[r] for r in rows)
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
