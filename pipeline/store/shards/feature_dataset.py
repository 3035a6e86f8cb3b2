"""Rows of a feature set in a given order: a sequence and map-style dataset for torch."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.store.shards.row_keys import RowNumbers, rows_at


class RowSource(Protocol):
    """Row access of a feature set; pickled as its folder."""

    @property
    def ids(self) -> Sequence[str]:
        """The id of each row."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""

    @property
    def dtype(self) -> np.dtype:
        """Stored dtype."""

    @property
    def ok(self) -> np.ndarray:
        """(rows,) bool."""

    def rows_to_read(self, ids: Sequence[str], allow_failed: bool = False) -> RowNumbers:
        """Return the row number of each id; raise if one is missing or failed."""

    def read_rows(self, rows: RowNumbers) -> np.ndarray:
        """Return (n, *row_shape) of row numbers (n,)."""


class FeatureDataset:
    """Rows of a feature set by position, in a given order.

    A sequence and a map-style dataset for `torch.utils.data.DataLoader`: a batch is one read, each
    worker opens the shards itself (the object is pickled as folder and ids), and nothing is
    written. `torch.utils.data.StackDataset` combines it with labels or ids.

    Attributes
    ----------
    ids : sequence of str. The id of each row.
    shape : tuple of int. (rows, *row_shape).
    dtype : numpy.dtype. Stored dtype.
    ok : numpy.ndarray. (rows,) bool, False where a row failed and holds NaN.

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
        """Stored dtype."""
        return self._features.dtype

    @property
    def ok(self) -> np.ndarray:
        """(rows,) bool, False where a row failed and holds NaN."""
        return self._features.ok[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return the row of a position or an id, or the rows of several, as an array."""
        positions, alone = rows_at(key, len(self), self._positions_of)
        rows = self._features.read_rows(self._rows[positions])
        return rows[0] if alone else rows

    def __getitems__(self, positions: list[int]) -> list[np.ndarray]:
        """Return the rows of a batch in one read; called by torch's data loaders."""
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
        ids = None if self._own_ids is None else list(self._own_ids)
        return type(self), (self._features, ids, self._allow_failed)

    def _positions_of(self, ids: Sequence[str]) -> RowNumbers:
        """Return the first position of each id."""
        rows = self._features.rows_to_read(ids, allow_failed=True)
        order = np.argsort(self._rows, kind="stable")
        at = np.searchsorted(self._rows, rows, sorter=order)
        selected = at < len(order)
        selected[selected] = self._rows[order[at[selected]]] == rows[selected]
        if not selected.all():
            absent = [ids[i] for i in np.flatnonzero(~selected)[:5].tolist()]
            raise KeyError(f"{self!r} does not select {absent}")
        return order[at]


def as_array(rows: np.ndarray, dtype: Any, copy: bool | None) -> np.ndarray:
    """Return rows as an array according to numpy's `__array__` protocol."""
    if copy is False:
        raise ValueError("features are read from files: an array of them is always a copy")
    return rows if dtype is None else rows.astype(dtype, copy=False)
