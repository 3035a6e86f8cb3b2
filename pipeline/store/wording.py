"""Text for messages: counts with nouns, nearest names, and URLs without secrets."""

from collections.abc import Iterable
from difflib import SequenceMatcher

_MOST = 5
_ALIKE = 0.5
# Maximal difference in similarity from the nearest name.
_WITHIN = 0.2
# Shorter texts occur in too many names.
_SHORTEST_PART = 3
# Lists up to this length are quoted in full if no name is near.
_QUOTED = 12


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: "1 shard", "2 shards", "0 queries".

    Parameters
    ----------
    number : int. The count.
    noun : str. Singular.
    plural : str or None. None: the noun with an "s".
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def nearest(name: str, known: Iterable[str], most: int = _MOST) -> list[str]:
    """Return the known names most similar to a misspelt or abbreviated name, best first.

    Parameters
    ----------
    name : str. The unknown name.
    known : iterable of str. Known names; ties are in this order.
    most : int. Maximal number of results.
    """
    given = name.lower()
    near: list[tuple[float, int, str]] = []
    for other in dict.fromkeys(known):
        candidate = other.lower()
        likeness = SequenceMatcher(None, given, candidate).ratio()
        shorter, longer = sorted((given, candidate), key=len)
        part = len(shorter) >= _SHORTEST_PART and shorter in longer
        if part or likeness >= _ALIKE:
            near.append((likeness, -len(near), other))
    near.sort(reverse=True)
    return [other for likeness, _, other in near[:most] if likeness > near[0][0] - _WITHIN]


def did_you_mean(name: str, known: Iterable[str], listed_by: str = "") -> str:
    """Return the end of a message about an unknown name: the nearest names, or where to list all.

    Parameters
    ----------
    name : str. The unknown name.
    known : iterable of str. Known names.
    listed_by : str. Command that lists them, or "".
    """
    known = list(dict.fromkeys(known))
    if near := nearest(name, known):
        *others, last = near
        return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
    if not listed_by or 0 < len(known) <= _QUOTED:
        return f"known: {', '.join(known) or 'none'}"
    return f"`{listed_by}` lists all"


def without_secrets(url: str) -> str:
    """Return a URL for messages, without user, password and query, which may be a signature."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
