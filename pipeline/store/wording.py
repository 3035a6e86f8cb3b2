"""Text for messages and tables: counts with nouns, nearest names, URLs without secrets, rows."""

import csv
import io
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

_MOST = 5
_ALIKE = 0.5
# Maximal difference in similarity from the nearest name.
_WITHIN = 0.2
# Shorter texts occur in too many names.
_SHORTEST_PART = 3
# Lists up to this length are quoted in full if no name is near.
_QUOTED = 12


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: "1 shard", "2 shards", "2 entries"; others have a `plural`."""
    regular = f"{noun[:-1]}ies" if noun[-1] == "y" and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{number} {noun if number == 1 else plural or regular}"


def nearest(name: str, names: Iterable[str], most: int = _MOST) -> list[str]:
    """Return at most `most` names similar to a misspelt or abbreviated name, best first."""
    given = str(name).lower()
    near: list[tuple[float, int, str]] = []
    for other in dict.fromkeys(names):
        candidate = other.lower()
        likeness = SequenceMatcher(None, given, candidate).ratio()
        shorter, longer = sorted((given, candidate), key=len)
        part = len(shorter) >= _SHORTEST_PART and shorter in longer
        if part or likeness >= _ALIKE:
            near.append((likeness, -len(near), other))
    near.sort(reverse=True)
    return [other for likeness, _, other in near[:most] if likeness > near[0][0] - _WITHIN]


def did_you_mean(name: str, names: Iterable[str], listed_by: str = "") -> str:
    """Return the end of a message about an unknown name: near ones, or a command that lists all."""
    names = list(dict.fromkeys(names))
    if near := nearest(name, names):
        *others, last = near
        return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
    if not listed_by or 0 < len(names) <= _QUOTED:
        return f"known: {', '.join(names) or 'none'}"
    return f"`{listed_by}` lists all"


def without_secrets(url: str) -> str:
    """Return a URL for messages, without user, password and query, which may be a signature."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def csv_text(rows: Iterable[Iterable[Any]], quoted: bool = False) -> str:
    """Return rows as CSV, each on a line that ends in a newline; `quoted`: all but numbers."""
    text = io.StringIO()
    csv.writer(
        text,
        quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL,
        lineterminator="\n",
    ).writerows(rows)
    return text.getvalue()


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table whose first `texts` columns are aligned left, the others right.

    A bar or a line break in a cell, as in reasons of errors, does not end it.
    """
    rows = [[" ".join(cell.splitlines()).replace("|", r"\|") for cell in row] for row in rows]
    ruled = "|" + "---|" * texts + "---:|" * (len(columns) - texts)
    lines = [f"| {' | '.join(columns)} |", ruled, *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
