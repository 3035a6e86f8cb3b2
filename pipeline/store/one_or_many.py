"""Arguments that may be one text or several.

A str is a sequence of characters in Python: without this, a single text would become one row per
character.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from pipeline.store.errors import UnexpectedType


def texts_of(given: str | Iterable[str], what: str) -> tuple[Sequence[str], bool]:
    """Return the texts of an argument, and whether it was a single one.

    Parameters
    ----------
    given : str or iterable of str. A sequence is returned unchanged.
    what : str. Singular noun for a text in messages, such as "caption".

    Raises
    ------
    UnexpectedType
        Another type, or an element that is not a str; its position and type are named.
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
    """Return the values of an argument, one or several, in order.

    Parameters
    ----------
    given : value or iterable of values.
    single : tuple of type. Types of a single value.
    what : str. A value and its types, for messages, such as "a path (str or Path)".

    Raises
    ------
    UnexpectedType
        Neither a value nor an iterable in a fixed order.
    """
    if isinstance(given, single):
        return [given]
    return items_of(given, what)


def items_of(given: Any, what: str) -> list[Any]:
    """Return the items of an iterable in a fixed order.

    Raises
    ------
    UnexpectedType
        `given` is a mapping, a set, bytes or not iterable.
    """
    unordered = isinstance(given, Mapping | Set | bytes | bytearray)
    try:
        if not unordered:
            return list(given)
    except TypeError:
        pass
    raise UnexpectedType(f"found {_described(given)}; expected {what}, or a sequence of them")


def _described(value: object) -> str:
    return f"{type(value).__name__} {str(value)[:60]!r}"
