"""Feature sets: reading features by id, in the requested order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.datasets.manifest import Manifest
from pipeline.store.extras import require
from pipeline.store.objects.block_cache import together
from pipeline.store.objects.urls import absolute, shown, url_of
from pipeline.store.one_or_many import texts_of
from pipeline.store.packed import PackedTexts, TextIndex, repeated_texts
from pipeline.store.shards.feature_dataset import FeatureDataset, as_array
from pipeline.store.shards.format import (
    OK,
    SOURCE_CRC32,
    OtherShard,
    RowBlock,
    ShardEntry,
    ShardError,
    failures_of,
)
from pipeline.store.shards.index import FeatureIndex, read_index
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.row_keys import rows_at
from pipeline.store.shards.side_by_side import SideBySideRows, is_view, read_view

if TYPE_CHECKING:
    import pandas as pd

_BLOCK_BYTES = 1 << 24


class MissingRows(ShardError, KeyError):
    """Some of the requested ids have no row; a `KeyError` as well."""

    __str__ = Exception.__str__  # KeyError would quote the message


class FailedRows(ShardError):
    """Some of the requested rows failed and have no features."""


def read_features(path: str | Path) -> "FeatureSet":
    """Open a finished folder of feature shards.

    Parameters
    ----------
    path : str or Path. Folder written by `pipeline extract`, `pipeline text` or `write_features`,
        or its URL, such as s3://bucket/features/mine.

    Returns
    -------
    FeatureSet
        Rows by id.

    Raises
    ------
    ShardError
        The index is missing, a shard is missing, corrupt or of another set, or an id repeats.

    Examples
    --------
    >>> features = pipeline.read_features(folder)
    >>> features["a.jpg"]
    array([1., 2., 3.], dtype=float32)
    >>> features.read(["b.jpg", "a.jpg"]).shape
    (2, 3)
    """
    return FeatureSet(path)


def read_set_index(folder: str | Path) -> FeatureIndex:
    """Return the index of a feature folder or of a view that concatenates several."""
    return read_view(folder).index if is_view(folder) else read_index(folder)


class FeatureSet:
    """A finished folder of feature shards, or a view that concatenates several such folders.

    The folder may be a URL of any protocol of fsspec: rows are then read from there through a local
    cache (docs/sharing.md).

    A mapping of ids to rows. Brackets also accept row numbers, slices, lists and masks. Failed rows
    are NaN there and in `numpy.asarray(features)`, and `ok` is the mask of the other rows; `read`
    and `torch_dataset` raise on failed rows by default.

    Thread-safe and fork-safe. It is pickled as its folder, which a spawned data loader worker
    reopens.

    Attributes
    ----------
    folder : Path. Folder of the shards.
    index : `pipeline.store.shards.index.FeatureIndex`. Contents of `index.json`.
    ids : sequence of str. All row ids in file order.
    status : numpy.ndarray. (rows,) uint8; 0 where a row has features.
    crc32 : numpy.ndarray. (rows,) uint32, CRC-32 of the bytes of each stored row.
    source_crc32 : numpy.ndarray. (rows,) uint32, CRC-32 of the source of each row; 0 if unknown.
    errors : list of str. Reason of each row's failure, "" if it did not fail.
    sources : dict. Columns on each row's source by name, (rows,) each, such as "source_crc32".

    Examples
    --------
    >>> features
    <FeatureSet mine (3, 3) float32, 1 failed, in features/mine>
    >>> len(features), features.shape, "a.jpg" in features, list(features)
    (3, (3, 3), True, ['a.jpg', 'b.jpg', 'c.jpg'])
    >>> features[0]
    array([1., 2., 3.], dtype=float32)
    >>> features[["b.jpg", "a.jpg"]].shape, features[:2].shape, features[features.ok].shape
    ((2, 3), (2, 3), (2, 3))
    >>> features.failures()
    [('c.jpg', 'unreadable', 'not an image')]
    """

    def __init__(self, folder: str | Path) -> None:
        """Open all shards and check them against the index.

        Nothing is tried in a child process: `verify` does so for files of unknown origin.

        Raises
        ------
        ShardError
            The index is missing, a shard is missing, corrupt or of another set, an id repeats, or a
            part of a view has changed.
        """
        self.folder: Path = Path(folder)
        self._each: Callable[..., Iterable[Any]] = map if url_of(folder) is None else together
        self._shards: Sequence[ShardFile | SideBySideRows]
        if is_view(folder):
            view = read_view(folder)
            parts = [FeatureSet(part) for part in view.parts]
            self.index: FeatureIndex = view.index
            self._shards = [SideBySideRows(parts, view.scaling)]
        else:
            self.index = read_index(folder)
            opened = partial(_open, self.folder, self.index)
            self._shards = [*self._each(opened, self.index.shards)]
        first, *others = self._shards
        self.ids: Sequence[str] = first.ids
        if others:
            self.ids = every = PackedTexts(row_id for s in self._shards for row_id in s.ids)
            row = 0
            # The shards share the memory of the ids of the set.
            for shard in self._shards:
                shard.ids = every.part(row, row := row + shard.rows)
        self.status: npt.NDArray[np.uint8] = np.concatenate(
            [shard.status for shard in self._shards]
        )
        self.crc32: npt.NDArray[np.uint32] = np.concatenate([shard.crc32 for shard in self._shards])
        self.errors: list[str] = [error for shard in self._shards for error in shard.errors]
        # Values of the columns that describe the sources of rows, by name.
        self.sources: dict[str, npt.NDArray[Any]] = {
            name: np.concatenate([shard.sources[name] for shard in self._shards])
            for name in first.sources
        }
        self.source_crc32: npt.NDArray[np.uint32] = self.sources[SOURCE_CRC32]
        self._index: TextIndex | None = None
        self._first = np.cumsum([0, *(shard.rows for shard in self._shards)])
        if repeated_texts(self.ids):
            raise ShardError(f"{folder}: some ids have more than one row")

    def __reduce__(self) -> tuple[type["FeatureSet"], tuple[Path]]:
        return FeatureSet, (absolute(self.folder),)

    @property
    def recipe_hash(self) -> str:
        """16 hex digits that identify the features."""
        return self.index.header.recipe_hash

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self.index.header.row_shape

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, *row_shape)."""
        return (len(self), *self.row_shape)

    @property
    def dtype(self) -> np.dtype:
        """Stored dtype."""
        return np.dtype(self.index.header.dtype)

    @property
    def ok(self) -> np.ndarray:
        """(rows,) bool, False where a row failed and holds NaN."""
        return self.status == OK

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __contains__(self, row_id: object) -> bool:
        return isinstance(row_id, str) and bool(self._positions_of([row_id])[0] >= 0)

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return the row of an id or a row number, or the rows of several, failed ones as NaN.

        Parameters
        ----------
        key : str, int, slice, sequence of str or of int, or (rows,) bools.

        Returns
        -------
        numpy.ndarray
            (*row_shape) for a single id or number, otherwise (n, *row_shape), as stored.

        Raises
        ------
        MissingRows, IndexError, UnexpectedType, DamagedShard
        """
        rows, alone = rows_at(key, len(self), self.rows_of)
        features = self.read_rows(rows)
        return features[0] if alone else features

    def keys(self) -> Sequence[str]:
        """Return all row ids in file order."""
        return self.ids

    def values(self) -> Iterator[np.ndarray]:
        """Yield every row in file order, failed ones as NaN."""
        for block in self.row_blocks(np.arange(len(self))):
            yield from block.features

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (id, row) in file order, failed rows as NaN."""
        return zip(self.ids, self.values(), strict=True)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return as_array(self[:], dtype, copy)

    def __repr__(self) -> str:
        name = self.index.header.recipe.get("name", self.recipe_hash)
        return (
            f"<FeatureSet {name} {self.shape} {self.dtype}, {(~self.ok).sum()} failed, "
            f"in {shown(self.folder)}>"
        )

    def torch_dataset(
        self, ids: Iterable[str] | None = None, allow_failed: bool = False
    ) -> FeatureDataset:
        """Return rows as a map-style dataset for `torch.utils.data.DataLoader`.

        Parameters
        ----------
        ids : iterable of str or None. Row ids in the order of the dataset, possibly repeated;
            None: all rows.
        allow_failed : bool. Return failed rows as NaN instead of raising.

        Returns
        -------
        FeatureDataset
            Item i is the row (*row_shape) of id i.

        Raises
        ------
        MissingRows, FailedRows
        """
        return FeatureDataset(self, None if ids is None else texts_of(ids, "id")[0], allow_failed)

    def split(self, split: str, dataset: Manifest, allow_failed: bool = False) -> FeatureDataset:
        """Return the rows of a split: its images, or its captions if the set holds captions.

        Parameters
        ----------
        split : str. Name of the split.
        dataset : Manifest. As returned by `pipeline.read_manifest`.
        allow_failed : bool. Return failed rows as NaN instead of raising.

        Raises
        ------
        DatasetError
            The dataset has no such split.
        MissingRows, FailedRows
        """
        entries = dataset.select(split)
        images = entries.ids
        ids = images if images[0] in self else entries.captions.ids
        return self.torch_dataset(ids, allow_failed)

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a DataFrame with the ids as index and one column per number.

        Rows with several axes are flattened in C order; failed rows are NaN.

        Raises
        ------
        MissingPackage
            pandas is not installed.
        """
        pd = require("pandas", "to_pandas() needs")
        return pd.DataFrame(self[:].reshape(len(self), -1), pd.Index([*self.ids], name="id"))

    def rows_of(self, ids: Sequence[str]) -> np.ndarray:
        """Return the row number of each id, (len(ids),) int64; missing: `MissingRows`."""
        rows = self._positions_of(ids)
        if (rows < 0).any():
            absent = [ids[at] for at in np.flatnonzero(rows < 0).tolist()]
            raise MissingRows(
                f"{shown(self.folder)} has no rows for {len(absent)} of {len(ids)} ids, first "
                f"{absent[:5]}; it holds {len(self)} rows of dataset "
                f"{self.index.header.dataset!r}, first {self.ids[0]!r}: extract the missing ones, "
                "or name another folder"
            )
        return rows

    def rows_to_read(self, ids: Sequence[str], allow_failed: bool = False) -> np.ndarray:
        """Return the row number of each id, as `rows_of`; failed: `FailedRows`."""
        rows = self.rows_of(ids)
        failed = np.flatnonzero(self.status[rows] != OK)
        if failed.size and not allow_failed:
            first = [f"{ids[i]}: {self.errors[int(rows[i])]}" for i in failed[:5]]
            raise FailedRows(
                f"{shown(self.folder)}: {failed.size} of {len(ids)} requested rows have no "
                f"features, first {first}; fix the files and extract again, leave the failed rows "
                "out, or allow them as NaN (`allow_failed=True`)"
            )
        return rows

    def failures(self) -> list[tuple[str, str, str]]:
        """Return (id, status name, reason) of every failed row, in file order."""
        return failures_of(self)

    def read(
        self, ids: str | Iterable[str] | None = None, allow_failed: bool = False
    ) -> np.ndarray:
        """Return the features of ids in their order, or of all rows.

        Parameters
        ----------
        ids : str, iterable of str or None. Row ids, possibly repeated; None: all in file order.
        allow_failed : bool. Return failed rows as NaN instead of raising.

        Returns
        -------
        numpy.ndarray
            (n, *row_shape) as stored; (*row_shape) for a single id.

        Raises
        ------
        MissingRows, FailedRows, UnexpectedType, DamagedShard
        """
        requested, alone = (self.ids, False) if ids is None else texts_of(ids, "id")
        rows = self.read_rows(self.rows_to_read(requested, allow_failed))
        return rows[0] if alone else rows

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return stored rows (n, *row_shape) by row numbers (n,); failed ones are NaN."""
        if not rows.size:
            return np.empty((0, *self.row_shape), self.index.header.dtype)
        shard_of = np.searchsorted(self._first, rows, side="right") - 1
        if (shard_of == shard_of[0]).all():
            return self._shards[shard_of[0]].read_rows(rows - self._first[shard_of[0]])
        result = np.empty((len(rows), *self.row_shape), self.index.header.dtype)

        def read(number: int) -> None:
            here = np.flatnonzero(shard_of == number)
            result[here] = self._shards[number].read_rows(rows[here] - self._first[number])

        for _ in self._each(read, np.unique(shard_of)):
            pass
        return result

    def row(self, row_id: str, allow_failed: bool = False) -> np.ndarray:
        """Return the features of one id, (*row_shape) as stored; see `read`."""
        return self.read([row_id], allow_failed)[0]

    def blocks(self, ids: Sequence[str], allow_failed: bool = False) -> Iterator[RowBlock]:
        """Return an iterator over the rows of `ids` in that order, about 16 MiB at a time."""
        # Not a generator itself: missing and failed rows raise here, before the iteration starts.
        return self.row_blocks(self.rows_to_read(ids, allow_failed))

    def row_blocks(self, rows: np.ndarray) -> Iterator[RowBlock]:
        """Yield rows by row numbers (n,), including failed ones, about 16 MiB at a time."""
        step = max(1, _BLOCK_BYTES // self.index.header.row_bytes)
        for start in range(0, len(rows), step):
            here = rows[start : start + step]
            yield RowBlock.of(self, here, self.read_rows(here))

    def _positions_of(self, ids: Sequence[str]) -> np.ndarray:
        """Return the row number of each id, -1 for a missing one."""
        if self._index is None:
            self._index = TextIndex(self.ids)
        return self._index.rows_of(ids, len(ids))


def _open(folder: Path, index: FeatureIndex, entry: ShardEntry) -> ShardFile:
    path = folder / entry.file
    if url_of(path) is None and not path.is_file():
        raise ShardError(f"{path} is listed in the index but missing; copy it again")
    shard = ShardFile(path, entry.sha256)
    if unlike := index.header.difference_of_shard(shard.metadata()):
        raise OtherShard(f"{path} does not belong to the feature set of its index: it {unlike}")
    if shard.rows != entry.rows:
        raise OtherShard(f"{path} has {shard.rows} rows; the index records {entry.rows}")
    return shard
