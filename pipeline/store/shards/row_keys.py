"""Indexing of a feature set: ids, row numbers, slices and masks."""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.errors import PipelineError, UnexpectedType
from pipeline.store.one_or_many import items_of

RowNumbers = npt.NDArray[np.int64]

_EXPECTED = (
    "an id (str), a row number (int), a slice, a list of ids or of row numbers, or a mask of bools"
)


class RowOutOfRange(PipelineError, IndexError):
    """A row number is out of range; an `IndexError` as well."""


def rows_at(
    key: Any, count: int, rows_of: Callable[[Sequence[str]], RowNumbers]
) -> tuple[RowNumbers, bool]:
    """Return the row numbers that a key selects, and whether it selects a single row.

    Parameters
    ----------
    key : str, int, slice, sequence of str or of int, or (count,) bools.
    count : int. Number of rows.
    rows_of : callable. Returns the row number of each id, or raises.

    Raises
    ------
    RowOutOfRange
        A row number outside [-count, count), or a mask of another length.
    UnexpectedType
        An unsupported key type.
    """
    if isinstance(key, str):
        return rows_of([key]), True
    if isinstance(key, slice):
        return np.arange(count)[key], False
    if (number := _number(key)) is not None:
        return _in_range(np.array([number]), count), True
    items = items_of(key, _EXPECTED)
    if all(isinstance(item, str) for item in items) and items:
        return rows_of(items), False
    if isinstance(key, tuple):  # numpy would read features[0, 1] as an element
        raise UnexpectedType(f"found the tuple {key!r:.60}; expected {_EXPECTED}")
    if all(isinstance(item, bool | np.bool_) for item in items) and items:
        if len(items) != count:
            raise RowOutOfRange(f"found a mask of {len(items)} bools, expected {count}")
        return np.flatnonzero(items), False
    numbers = [_number(item) for item in items]
    if None in numbers:
        raise UnexpectedType(f"found {type(key).__name__} {key!r:.60}; expected {_EXPECTED}")
    return _in_range(np.array(numbers, np.int64), count), False


def _number(value: object) -> int | None:
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _in_range(numbers: RowNumbers, count: int) -> RowNumbers:
    outside = numbers[(numbers < -count) | (numbers >= count)]
    if outside.size:
        raise RowOutOfRange(f"row {outside[0]} is out of range: there are {count} rows, from 0")
    return numbers % count if count else numbers
