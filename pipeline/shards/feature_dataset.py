"""Rows of a feature set in a caller's order: a sequence, and a map-style dataset for torch."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.shards.row_keys import RowNumbers, rows_at


class RowSource(Protocol):
    """A feature set, as far as its rows go; pickled as its folder."""

    @property
    def ids(self) -> Sequence[str]:
        """The id of each row."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the stored numbers."""

    @property
    def ok(self) -> np.ndarray:
        """(rows,) bool."""

    def rows_to_read(self, ids: Sequence[str], allow_failed: bool = False) -> RowNumbers:
        """Return the row number of each id, or raise."""

    def read_rows(self, rows: RowNumbers) -> np.ndarray:
        """Return (n, *row_shape) of row numbers (n,)."""


class FeatureDataset:
    """Rows of a feature set by position, in an order of the caller's.

    A sequence of rows, and what `torch.utils.data.DataLoader` accepts as a map-style dataset: a
    batch is read at once, workers read the shards by themselves (it is pickled as the folder and
    the ids), and nothing is written. `torch.utils.data.StackDataset` joins it with labels or ids.

    Attributes
    ----------
    ids : sequence of str. The id of each row.
    shape : tuple of int. (rows, *row_shape).
    dtype : numpy.dtype. Type of the numbers.
    ok : numpy.ndarray. (rows,) bool, False where a row failed and is NaN.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> train = features.torch_dataset(["a.jpg", "b.jpg"])
    >>> [batch.shape for batch in DataLoader(train, batch_size=2)]
    [torch.Size([2, 3])]
    >>> train["b.jpg"]
    array([4., 5., 6.], dtype=float32)
    """

    def __init__(
        self, features: RowSource, ids: Sequence[str] | None = None, allow_failed: bool = False
    ) -> None:
        """Select rows; see `pipeline.FeatureSet.torch_dataset`."""
        self._features, self._own_ids, self._allow_failed = features, ids, allow_failed
        self.ids: Sequence[str] = features.ids if ids is None else ids
        self._rows = features.rows_to_read(self.ids, allow_failed)

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, *row_shape)."""
        return (len(self), *self._features.row_shape)

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return self._features.dtype

    @property
    def ok(self) -> np.ndarray:
        """(rows,) bool, False where a row failed and is NaN."""
        return self._features.ok[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return the row of a position or an id, or the rows of several, as an array."""
        positions, alone = rows_at(key, len(self), self._positions_of)
        rows = self._features.read_rows(self._rows[positions])
        return rows[0] if alone else rows

    def __getitems__(self, positions: list[int]) -> list[np.ndarray]:
        """Return the rows of a batch, read at once; torch's data loaders call it."""
        return list(self[positions])

    def __iter__(self) -> Iterator[np.ndarray]:
        for row in self._rows:
            yield self._features.read_rows(np.array([row]))[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return as_array(self[:], dtype, copy)

    def __repr__(self) -> str:
        failed = f", {(~self.ok).sum()} failed" if self._allow_failed else ""
        return f"<{type(self).__name__} {self.shape} {self.dtype}{failed} of {self._features!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        own = None if self._own_ids is None else list(self._own_ids)
        return type(self), (self._features, own, self._allow_failed)

    def _positions_of(self, ids: Sequence[str]) -> RowNumbers:
        """Return the first position of each id."""
        wanted = self._features.rows_to_read(ids, allow_failed=True)
        order = np.argsort(self._rows, kind="stable")
        at = np.searchsorted(self._rows, wanted, sorter=order)
        found = at < len(order)
        found[found] = self._rows[order[at[found]]] == wanted[found]
        if not found.all():
            absent = [ids[i] for i in np.flatnonzero(~found)[:5].tolist()]
            raise KeyError(f"{self!r} does not select {absent}")
        return order[at]


def as_array(rows: np.ndarray, dtype: Any, copy: bool | None) -> np.ndarray:
    """Return rows that were read as numpy's protocol `__array__` asks for them."""
    if copy is False:
        raise ValueError("features are read from files, so an array of them is always a copy")
    return rows if dtype is None else rows.astype(dtype, copy=False)
