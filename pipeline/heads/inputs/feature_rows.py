"""Features of one side by row number: in memory, or read from shards on demand."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipeline.heads import HeadError
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.wording import counted

Features = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

_BLOCK_BYTES = 1 << 24


class Rows(Protocol):
    """Features of one side by row number; picklable, for prefetch processes."""

    row_shape: tuple[int, ...]

    def __len__(self) -> int: ...

    def take(self, rows: RowNumbers) -> Features:
        """Return a new array (n, *row_shape) float32, all finite, of row numbers (n,)."""

    def digest(self) -> str:
        """Return a digest of the features."""


@runtime_checkable
class EpochRows(Rows, Protocol):
    """Rows that differ between epochs, such as randomly cropped images."""

    def in_epoch(self, epoch: int) -> Rows:
        """Return the rows of an epoch, counted from 0."""


class ArrayRows:
    """Rows in memory."""

    def __init__(self, array: Features) -> None:
        """Wrap (rows, *row_shape) float32; raise HeadError if a row is not finite."""
        _require_finite(array, range(len(array)), "the array of features")
        self._array = array
        self.row_shape: tuple[int, ...] = array.shape[1:]

    def __len__(self) -> int:
        return len(self._array)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,)."""
        return self._array[rows]

    def digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self._array).data).hexdigest()


class FeatureRows:
    """Rows that are read from shards on demand, in any process."""

    def __init__(self, features: FeatureSet, ids: Sequence[str]) -> None:
        """Select the rows of `ids`, in that order; each must have features."""
        self._features = features
        self._rows = features.rows_to_read(ids)
        self.row_shape: tuple[int, ...] = features.row_shape
        # A row is checked once per process, as is its CRC-32.
        self._known_finite = np.zeros(len(ids), bool)

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,); raise if one is not finite."""
        here = self._rows[rows]
        taken = self._features.read_rows(here).astype(np.float32, copy=False)
        fresh = np.flatnonzero(~self._known_finite[rows])
        if fresh.size:
            _require_finite(
                taken[fresh], self._features.ids, str(self._features.folder), here[fresh]
            )
            self._known_finite[rows] = True
        return taken

    def digest(self) -> str:
        """Return the SHA-256 of the recipe hash and of the rows' checksums."""
        crc32 = self._features.crc32[self._rows]
        return hashlib.sha256(self._features.recipe_hash.encode() + crc32.tobytes()).hexdigest()


def float32_bytes(rows: Rows) -> int:
    """Return the size of all rows as float32, in bytes."""
    return 4 * len(rows) * int(np.prod(rows.row_shape, dtype=np.int64))


def is_in_memory(rows: Rows) -> bool:
    """Return whether the rows are in memory."""
    return isinstance(rows, ArrayRows)


def in_blocks(rows: Rows, most: int | None = None) -> Iterator[Features]:
    """Yield all rows in order, (n, *row_shape) float32, in blocks of `rows_of_block` rows."""
    step = rows_of_block(rows, most)
    for start in range(0, len(rows), step):
        yield rows.take(np.arange(start, min(start + step, len(rows))))


def rows_of_block(rows: Rows, most: int | None = None) -> int:
    """Return the row count of a float32 block of about 16 MiB, at least 1 and at most `most`."""
    step = max(1, _BLOCK_BYTES // max(1, 4 * int(np.prod(rows.row_shape, dtype=np.int64))))
    return step if most is None else min(step, most)


def loaded(rows: FeatureRows, in_memory: int) -> Rows:
    """Load the rows if they are smaller than `in_memory` bytes as float32; else return them."""
    if float32_bytes(rows) >= in_memory:
        return rows
    array = np.empty((len(rows), *rows.row_shape), np.float32)
    start = 0
    for block in in_blocks(rows):
        array[start : start + len(block)] = block
        start += len(block)
    return ArrayRows(array)


def _require_finite(
    features: Features, names: Sequence[object], where: str, rows: RowNumbers | None = None
) -> None:
    """Raise if a row is not finite; `rows` are indices into `names`, None: all in order."""
    bad = np.flatnonzero(~np.isfinite(features.reshape(len(features), -1)).all(axis=1))
    if bad.size:
        first = (bad if rows is None else rows[bad])[:5].tolist()
        raise HeadError(
            f"{where}: {counted(bad.size, 'row has', 'rows have')} NaN or infinite values, first "
            f"{[names[at] for at in first]}; recompute these features with `pipeline extract` "
            "or `pipeline text`"
        )
