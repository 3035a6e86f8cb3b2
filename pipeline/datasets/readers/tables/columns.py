"""Identification of the columns of a table: detected by name, or specified by the user."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pipeline.datasets.readers.tables.table import RowFault

KNOWN: dict[str, tuple[str, ...]] = {
    "path": (
        *("path", "image", "file", "filename", "file_name", "filepath", "file_path", "image_path"),
        *("image_file", "image_name", "img", "img_path"),
    ),
    "caption": (
        *("caption", "captions", "text", "texts", "sentence", "sentences", "description"),
        *("descriptions", "title", "comment"),
    ),
    "split": ("split", "subset", "partition", "set"),
    "id": ("id", "image_id", "key"),
}
"""Detected column names, in any case; the standard names come first."""

_PLAIN = {"path", "caption", "captions", "split", "id"}
_ADDRESSES = ("url", "image_url", "img_url", "coco_url", "flickr_url")
_NUMBERED = re.compile(
    r"(captions?|texts?|sentences?|descriptions?|titles?|comments?)[ _-]?(\d{1,9})", re.IGNORECASE
)


@dataclass(frozen=True)
class ColumnNames:
    """Column names specified by the user; missing ones are detected by `KNOWN`.

    Attributes
    ----------
    path, split, id : str or None. Columns of the image path, the split and the id.
    captions : tuple of str. Caption columns.
    """

    path: str | None = None
    captions: tuple[str, ...] = ()
    split: str | None = None
    id: str | None = None


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns of a table.

    Attributes
    ----------
    path : str. Column of the image path.
    captions : tuple of str. Caption columns.
    split, id : str or None. Columns of split and id; None: the table has none.
    others : set of str. Metadata columns.
    """

    path: str
    captions: tuple[str, ...]
    split: str | None
    id: str | None
    others: frozenset[str]

    @property
    def recognised(self) -> dict[str, tuple[str, ...]]:
        """The columns of each meaning with non-standard names, or several of them."""
        found = {"path": (self.path,), "caption": self.captions}
        found |= {"split": (self.split,)} if self.split else {}
        found |= {"id": (self.id,)} if self.id else {}
        return {
            meaning: names
            for meaning, names in found.items()
            if len(names) > 1 or not _PLAIN.issuperset(names)
        }


def find_columns(found: Sequence[str], stated: ColumnNames) -> Columns:
    """Identify the columns of a table.

    Parameters
    ----------
    found : sequence of str. Column names.
    stated : ColumnNames. Names specified by the user.

    Raises
    ------
    RowFault
        A column is missing or ambiguous; the text lists the candidates.
    """
    path = _one("path", found, stated.path)
    if path is None:
        raise _missing("path", found)
    captions = _captions(found, stated.captions)
    split, image_id = _one("split", found, stated.split), _one("id", found, stated.id)
    used = {path, *captions, split, image_id}
    return Columns(path, captions, split, image_id, frozenset(found) - used)


def _one(meaning: str, found: Sequence[str], stated: str | None) -> str | None:
    if stated is not None:
        return _stated(meaning, found, stated)
    return _recognised(meaning, found)


def _recognised(meaning: str, found: Sequence[str]) -> str | None:
    """Return the detected column of a meaning; the standard name takes precedence."""
    known = KNOWN[meaning]
    if known[0] in found:
        return known[0]
    named = [name for name in found if name.strip().lower() in known]
    if len(named) > 1:
        raise RowFault(
            "columns",
            f"the columns {_quoted(named)} may all be the {meaning}; state which with "
            f"{_parameter(meaning)}",
        )
    return named[0] if named else None


def _captions(found: Sequence[str], stated: Sequence[str]) -> tuple[str, ...]:
    if stated:
        return tuple(_stated("caption", found, name) for name in stated)
    if {"caption", "captions"} <= set(found):
        raise RowFault(
            "columns",
            "found 'caption' and 'captions'; expected only one, with a text or a list of texts; "
            "state which with `caption_columns=...`",
        )
    numbered: dict[str, list[tuple[int, str]]] = {}
    for name in found:
        if match := _NUMBERED.fullmatch(name.strip()):
            numbered.setdefault(match[1].lower(), []).append((int(match[2]), name))
    plain = _recognised("caption", found)
    if len(numbered) > 1 or (plain and numbered and plain.lower() not in numbered):
        several = [plain] if plain else []
        several += [name for group in numbered.values() for _, name in group]
        raise RowFault(
            "columns",
            f"the columns {_quoted(several)} may all be captions; state which with "
            "`caption_columns=...`, repeatable",
        )
    names = tuple(name for group in numbered.values() for _, name in sorted(group))
    names = (plain, *names) if plain else names
    if not names:
        raise _missing("caption", found)
    return names


def _stated(meaning: str, found: Sequence[str], name: str) -> str:
    same = [column for column in found if column.strip().lower() == name.strip().lower()]
    if name in found or len(same) == 1:
        return name if name in found else same[0]
    close = get_close_matches(name, found, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise RowFault(
        "columns",
        f"{_parameter(meaning, name)}: not one of the columns {_quoted(found)}{meant}",
    )


def _missing(meaning: str, found: Sequence[str]) -> RowFault:
    lower = {name.strip().lower(): name for name in found}
    if meaning == "path" and (addresses := [lower[a] for a in _ADDRESSES if a in lower]):
        return RowFault(
            "columns",
            f"the column {addresses[0]!r} has addresses, and nothing is downloaded here; download "
            "the images first (for example with img2dataset), and list their paths in a column "
            "`path`",
        )
    names = [name for name in lower if not any(name in known for known in KNOWN.values())]
    close = [name for name in names if get_close_matches(name, KNOWN[meaning], n=1, cutoff=0.7)]
    meant = f"; did you mean {_parameter(meaning, lower[close[0]])}?" if close else ";"
    return RowFault(
        "columns",
        f"no column of {meaning}s among {_quoted(found)}{meant} one of {', '.join(KNOWN[meaning])} "
        f"is recognised, others are stated with {_parameter(meaning)}",
    )


def _parameter(meaning: str, value: str = "...") -> str:
    """Return the parameter that specifies a column, for messages."""
    return f"`caption_columns={value}`" if meaning == "caption" else f"`{meaning}_column={value}`"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
