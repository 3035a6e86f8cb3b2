"""Arguments that may be one text or several.

A str is a sequence of characters in Python: without this, a single text would become one row per
character.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from pipeline.store.errors import UnexpectedType


def texts_of(given: str | Iterable[str], what: str) -> tuple[Sequence[str], bool]:
    """Return the texts of an argument, and whether it was a single one.

    A sequence is returned unchanged; `what` is the noun for a text in messages.
    """
    if isinstance(given, str):
        return [given], True
    texts = (
        given
        if isinstance(given, Sequence) and not isinstance(given, bytes | bytearray)
        else items_of(given, f"a {what} (str)")
    )
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise UnexpectedType(
                f"{what} {position} is {_described(text)}; expected a str for each {what}"
            )
    return texts, False


def values_of(given: Any, single: tuple[type, ...], what: str) -> list[Any]:
    """Return the values of an argument in order: one of a `single` type, or an iterable."""
    if isinstance(given, single):
        return [given]
    return items_of(given, what)


def items_of(given: Any, what: str) -> list[Any]:
    """Return the items of an iterable in a fixed order; raise for mappings, sets and bytes."""
    unordered = isinstance(given, Mapping | Set | bytes | bytearray)
    try:
        if not unordered:
            return list(given)
    except TypeError:
        pass
    raise UnexpectedType(f"found {_described(given)}; expected {what}, or a sequence of them")


def _described(value: object) -> str:
    return f"{type(value).__name__} {str(value)[:60]!r}"
