"""Millions of short texts in little memory: one numpy array, looked up by sorted hashes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
import numpy.typing as npt

T_co = TypeVar("T_co", covariant=True)

_AT_ONCE = 1 << 15


class PackedTexts(Sequence[str]):
    """Immutable texts in one numpy string array: UTF-8 and 17 more bytes per text.

    Slices are lists. A packed sequence equals any other sequence of the same texts.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Pack the texts; an unpaired surrogate raises UnicodeEncodeError."""
        self._array: npt.NDArray[Any] = np.fromiter(texts, np.dtypes.StringDType())

    @classmethod
    def _of(cls, array: npt.NDArray[Any]) -> "PackedTexts":
        packed = cls.__new__(cls)
        packed._array = array
        return packed

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return one text, or a list for a slice."""
        if isinstance(index, slice):
            texts: list[str] = self._array[index].tolist()
            return texts
        text: str = self._array[index]
        return text

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} texts, first {self[:3]}>"

    def part(self, start: int, stop: int) -> "PackedTexts":
        """Return the texts from `start` to `stop` - 1 as a view."""
        return self._of(self._array[start:stop])

    def take(self, rows: npt.NDArray[np.int64]) -> "PackedTexts":
        """Return the texts at positions (n,)."""
        return self._of(self._array[rows])

    @classmethod
    def joined(cls, parts: Iterable["PackedTexts"]) -> "PackedTexts":
        """Return the concatenation of packed texts."""
        return cls._of(np.concatenate([cls()._array, *(part._array for part in parts)]))


class TextIndex:
    """Positions of distinct texts in a sequence, with an overhead of 16 bytes per text."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Index `texts`, by reference; of equal texts the first is found."""
        self._texts = texts
        hashes = _hashes(texts, len(texts))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def rows_of(self, texts: Iterable[str], number: int) -> npt.NDArray[np.int64]:
        """Return the position of each of `number` texts, (number,); -1 if absent."""
        rows = np.full(number, -1, np.int64)
        remaining = iter(texts)
        for start in range(0, number, _AT_ONCE):
            chunk = list(islice(remaining, _AT_ONCE))
            rows[start : start + len(chunk)] = self._rows_of(chunk)
        return rows

    def row_of(self, text: str) -> int:
        """Return the position of a text; -1 if absent."""
        hashed = _hashes([text], 1)[0]
        at = int(np.searchsorted(self._hashes, hashed))
        if at == len(self._hashes) or self._hashes[at] != hashed:
            return -1
        return self._among_equal_hashes(text, at)

    def _rows_of(self, texts: list[str]) -> npt.NDArray[np.int64]:
        """Return the position of each text of a list, (n,); -1 if absent."""
        hashes = _hashes(texts, len(texts))
        at = np.searchsorted(self._hashes, hashes)
        rows = np.full(len(texts), -1, np.int64)
        hits = at < len(self._hashes)
        hits[hits] = self._hashes[at[hits]] == hashes[hits]
        rows[hits] = self._order[at[hits]]
        consecutive = len(rows) > 0 and hits.all() and (np.diff(rows) == 1).all()
        # Common case: the rows of a split are requested in their stored order. One comparison of
        # lists is faster than one of texts for each row.
        if consecutive and self._texts[int(rows[0]) : int(rows[-1]) + 1] == texts:
            return rows
        # Equal hashes do not prove equal texts.
        for number in np.flatnonzero(hits).tolist():
            if self._texts[int(rows[number])] != texts[number]:
                rows[number] = self._among_equal_hashes(texts[number], int(at[number]))
        return rows

    def _among_equal_hashes(self, text: str, at: int) -> int:
        hashed = self._hashes[at]
        while at < len(self._hashes) and self._hashes[at] == hashed:
            if self._texts[row := int(self._order[at])] == text:
                return row
            at += 1
        return -1


class TextMapping(Mapping[str, T_co]):
    """Mapping from text to value, stored as two sequences.

    Overhead of 16 bytes per text, compared with about 100 for a dict. Values are computed lazily if
    their sequence computes them lazily.
    """

    def __init__(self, texts: Sequence[str], values: Sequence[T_co]) -> None:
        """Store distinct texts, and one value for each."""
        self._texts, self._values = texts, values
        self._index = TextIndex(texts)

    def __getitem__(self, text: str) -> T_co:
        if (row := self._index.row_of(text)) < 0:
            raise KeyError(text)
        return self._values[row]

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self._index.row_of(text) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def lacking(self, texts: Sequence[str]) -> list[str]:
        """Return the texts without a value, in order."""
        rows = self._index.rows_of(texts, len(texts))
        return [texts[row] for row in np.flatnonzero(rows < 0).tolist()]


def repeated_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts that occur more than once, in the order of their first occurrence."""
    # Eight bytes per text, where a set of the texts would need about 100.
    hashes = _hashes(texts, len(texts))
    ordered = np.sort(hashes)
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not shared.size:
        return []
    # Few: equal texts, and rare hash collisions.
    counts: dict[str, int] = {}
    for row in np.flatnonzero(np.isin(hashes, shared)).tolist():
        counts[texts[row]] = counts.get(texts[row], 0) + 1
    return [text for text, count in counts.items() if count > 1]


def sorted_order(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the positions of the texts in sorted order (by code point), (texts,)."""
    if all(a <= b for a, b in pairwise(texts)):
        return np.arange(len(texts))
    return np.array(sorted(range(len(texts)), key=list(texts).__getitem__), np.int64)


def _hashes(texts: Iterable[Any], number: int) -> npt.NDArray[np.int64]:
    return np.fromiter(map(hash, texts), np.int64, number)
