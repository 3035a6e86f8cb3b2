"""Keys of rows: ids, row numbers, slices and masks; and the image that an id belongs to."""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.errors import UnexpectedType
from pipeline.store.one_or_many import items_of

RowNumbers = npt.NDArray[np.int64]

# Captions are `<image id>#<k>`, regions `<image id>@<k>`.
_OF_IMAGE = re.compile(r"(.+)([#@])([0-9]{1,18})", re.DOTALL)

_EXPECTED = (
    "an id (str), a row number (int), a slice, a list of ids or of row numbers, or a mask of bools"
)


def rows_at(
    key: Any, count: int, rows_of: Callable[[Sequence[str]], RowNumbers]
) -> tuple[RowNumbers, bool]:
    """Return the row numbers that a key selects of `count` rows, and whether it is a single one.

    Raises IndexError, also for a mask of another length, or `UnexpectedType`.
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
            raise IndexError(f"found a mask of {len(items)} bools, expected {count}")
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
        raise IndexError(f"row {outside[0]} is out of range: there are {count} rows, from 0")
    return numbers % count if count else numbers


def images_of_rows(ids: Sequence[str], images: Container[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the image id of each row, its kind ("", "#" caption, "@" region), and its number.

    The image id is not in `images`, those of the dataset, if the dataset lacks the image.
    """
    # In a set of captions, `a#1` is a caption of `a` even if an image has that id.
    all_images = all(row_id in images for row_id in ids)
    for row_id in ids:
        match = None if all_images else _OF_IMAGE.fullmatch(row_id)
        if match and (match[1] in images or row_id not in images):
            yield match[1], match[2], int(match[3])
        else:
            yield row_id, "", 0
