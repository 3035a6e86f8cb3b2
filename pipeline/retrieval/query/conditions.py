"""Conditions that restrict a search by split, id, file and metadata of the images.

Regular expressions are evaluated by RE2 (pyarrow) in linear time, so that no pattern makes a server
hang. Patterns that compile to many states are limited by `SECONDS`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.datasets.entries import PackedEntries
from pipeline.datasets.manifest import Metadata
from pipeline.retrieval import EmbeddingsError

MAX_CHARACTERS = 1000
"""Maximum length of a condition."""

SECONDS = 5.0
"""Time limit for all regular expressions of a query, in seconds."""

MAX_CHOICES = 20
"""Maximum number of distinct values of a field that are offered as a list."""

_OPERATORS = {*"!<>=~"}
_OWN = ("id", "file", "split")
_FORM = re.compile(r"\s*(.*?)\s*(!=|<=|>=|=|~|<|>)(.*)", re.DOTALL)
_COMPARE: dict[str, Callable[..., Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_FIRST_BATCH = 256

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    """A condition on one field, such as `split=test`, `id~^vacation/` or `year>2019`."""

    field: str  # "id", "file", "split" or a column of the metadata
    operator: str  # or "~", a regular expression that matches anywhere
    value: str  # number, text or pattern

    @classmethod
    def of(cls, text: str) -> "Condition":
        """Parse a condition; blanks around field and value are removed."""
        if len(text) > MAX_CHARACTERS:
            raise EmbeddingsError(
                f"a condition has {len(text)} characters; the limit is {MAX_CHARACTERS}"
            )
        match = _FORM.fullmatch(text)
        if match is None or not match[1]:
            raise EmbeddingsError(
                f"{text!r} is not a condition; expected FIELD=VALUE, FIELD!=VALUE, FIELD~REGEX, or "
                "FIELD<NUMBER, such as split=test or 'id~^vacation/'"
            )
        return cls(match[1], match[2], match[3] if match[2] == "~" else match[3].strip())


@dataclass(frozen=True, eq=False)
class _Column:
    """Values of a field, each with its entry number; an entry may have several values or none."""

    texts: pa.Array
    entry: npt.NDArray[np.int64]

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64] | None:
        """The values as numbers; None unless all are finite numbers."""
        try:
            numbers = pc.cast(self.texts, pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return None
        return numbers if len(numbers) and np.isfinite(numbers).all() else None


class Fields:
    """Searchable fields of a dataset's entries."""

    def __init__(self, entries: PackedEntries, metadata: Mapping[str, Metadata]) -> None:
        """Join entries and metadata by id; a column named like another field is ignored."""
        self._entries, self._metadata = entries, metadata
        columns = sorted({name for record in metadata.values() for name in record} - {*_OWN})
        self.names: tuple[str, ...] = (*_OWN, *columns)
        self._columns: dict[str, _Column] = {}

    def matching(self, conditions: Iterable[Condition]) -> Mask:
        """Return the mask of the entries that fulfil all conditions, (entries,) bool."""
        mask, begun = np.ones(len(self._entries), bool), monotonic()
        for condition in conditions:
            mask &= self._matching(condition, begun)
        return mask

    def choices(self, entries: npt.NDArray[np.int64]) -> dict[str, tuple[str, ...]]:
        """Return the sorted values in `entries` (n,) of each field with 2 to `MAX_CHOICES`."""
        choices = {}
        for name in self.names[2:]:
            if _OPERATORS & {*name}:
                continue
            column = self._column(name)
            texts = column.texts.filter(pa.array(np.isin(column.entry, entries)))
            values = texts.unique().to_pylist()
            if 1 < len(values) <= MAX_CHOICES and max(map(len, values)) <= MAX_CHARACTERS // 2:
                number = column.numbers is not None
                choices[name] = tuple(sorted(values, key=float if number else None))
        return choices

    def _matching(self, condition: Condition, begun: float) -> Mask:
        column, value = self._column(condition.field), condition.value
        if condition.operator == "~":
            chosen = _matches(column.texts, condition, begun)
        elif condition.operator in _COMPARE:
            chosen = _COMPARE[condition.operator](*_as_numbers(column, condition))
        else:
            chosen = pc.equal(column.texts, pa.scalar(value)).to_numpy(zero_copy_only=False)
        mask = np.zeros(len(self._entries), bool)
        mask[column.entry[chosen]] = True
        return ~mask if condition.operator == "!=" else mask

    def _column(self, name: str) -> _Column:
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _read(self, name: str) -> _Column:
        entries, ids = np.arange(len(self._entries)), self._entries.ids
        if name == "split":
            return _Column(pa.array(self._entries.splits, pa.string()), entries)
        if name in _OWN:
            texts = ids if name == "id" else self._entries.files
            return _Column(pa.array(texts[:], pa.string()), entries)
        if name not in self.names:
            lower = {field.lower(): field for field in self.names}
            close = get_close_matches(name.lower(), lower, n=3)
            meant = f" (did you mean {' or '.join(lower[c] for c in close)}?)" if close else ""
            raise EmbeddingsError(
                f"there is no field {name!r}{meant}; the dataset has {', '.join(self.names)}"
            )
        values = [
            (at, text)
            for at, record in enumerate(map(self._metadata.get, ids))
            if record and name in record
            for text in _texts(record[name])
        ]
        rows = np.fromiter((at for at, _ in values), np.int64, len(values))
        return _Column(pa.array([text for _, text in values], pa.string()), rows)


def _texts(value: Any) -> Sequence[str]:
    """Return a metadata value as texts: numbers in their shortest form, each item of a list."""
    if isinstance(value, list):
        return value
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (str(value),)


def _as_numbers(column: _Column, condition: Condition) -> tuple[npt.NDArray[np.float64], float]:
    """Return the values of a column and the value of the condition as numbers."""
    if column.numbers is None:
        shown = Counter(column.texts.slice(0, 3).to_pylist())
        raise EmbeddingsError(
            f"{condition.field!r} is not a column of numbers (it has {', '.join(map(repr, shown))})"
            f", so {condition.operator} does not apply; use =, != or ~"
        )
    try:
        return column.numbers, float(condition.value)
    except ValueError:
        raise EmbeddingsError(
            f"{condition.field}{condition.operator}{condition.value}: {condition.value!r} is not a "
            "number"
        ) from None


def _matches(texts: pa.Array, condition: Condition, begun: float) -> Mask:
    """Return the mask of matching texts, (texts,) bool; raise `SECONDS` after `begun`."""
    masks, start, size = [np.zeros(0, bool)], 0, _FIRST_BATCH
    while start < len(texts) or not start:
        batch, since = texts.slice(start, size), monotonic()
        if since - begun > SECONDS:
            raise EmbeddingsError(
                f"regular expressions, the last one {condition.value!r} of {condition.field!r}, "
                f"take longer than {SECONDS:g} s for {len(texts)} values; use simpler ones"
            )
        try:
            matched = pc.match_substring_regex(batch, condition.value)
        except pa.ArrowInvalid as error:
            raise EmbeddingsError(
                f"the regular expression {condition.value!r} of {condition.field!r} does not "
                f"compile ({str(error).removeprefix('Invalid regular expression: ')}); the syntax "
                "is that of RE2, without lookarounds and references to groups"
            ) from error
        masks.append(matched.to_numpy(zero_copy_only=False).astype(bool))
        start += size
        if monotonic() - since < 0.1:
            size *= 4
    return np.concatenate(masks)
