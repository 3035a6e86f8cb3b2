"""Identification of the columns of a table: detected by name, or specified by the user."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
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
        *("descriptions", "title", "comment", "conversations"),
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
    """Column names specified by the user; missing ones are detected by `KNOWN`."""

    path: str | None = None
    captions: tuple[str, ...] = ()
    split: str | None = None
    id: str | None = None


@dataclass(frozen=True)
class Columns:
    """Meaning of the columns of a table; `split` and `id` None: it lacks them."""

    path: str
    captions: tuple[str, ...]
    split: str | None
    id: str | None
    others: frozenset[str]

    @property
    def recognised(self) -> dict[str, tuple[str, ...]]:
        """The columns of each meaning with non-standard names, or several of them."""
        by_meaning = {"path": (self.path,), "caption": self.captions}
        by_meaning |= {"split": (self.split,)} if self.split else {}
        by_meaning |= {"id": (self.id,)} if self.id else {}
        return {
            meaning: names
            for meaning, names in by_meaning.items()
            if len(names) > 1 or not _PLAIN.issuperset(names)
        }


def find_columns(
    header: Sequence[str], stated: ColumnNames, images: Collection[str] = ()
) -> Columns:
    """Identify the columns by name; a missing or ambiguous one is a `RowFault` with candidates.

    `images` are the columns of images with their bytes. A single one needs no name, unless a column
    is called `path`.
    """
    if odd := [name for name in header if not isinstance(name, str)]:
        raise RowFault("columns", f"found the name {odd[0]!r}; expected names that are texts")
    counts = Counter(name.strip().lower() for name in header)
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise RowFault(
            "columns", f"found {_quoted(repeated)} more than once; expected different columns"
        )
    name = stated.path
    if name is None and len(images) == 1 and KNOWN["path"][0] not in header:
        (name,) = images
    path = _one("path", header, name)
    if path is None:
        raise _missing("path", header)
    captions = _captions(header, stated.captions)
    split, image_id = _one("split", header, stated.split), _one("id", header, stated.id)
    # An id may well be the path.
    used = (path, *captions, *([split] if split else []))
    if repeated := [name for name, count in Counter(used).items() if count > 1]:
        raise RowFault(
            "columns", f"{_quoted(repeated)} is stated more than once; a column has one meaning"
        )
    return Columns(path, captions, split, image_id, frozenset(header).difference(used, [image_id]))


def _one(meaning: str, header: Sequence[str], stated: str | None = None) -> str | None:
    """Return the stated or detected column of a meaning; the standard name takes precedence."""
    if stated is not None:
        return _stated(meaning, header, stated)
    aliases = KNOWN[meaning]
    if aliases[0] in header:
        return aliases[0]
    named = [name for name in header if name.strip().lower() in aliases]
    if len(named) > 1:
        raise RowFault(
            "columns",
            f"the columns {_quoted(named)} may all be the {meaning}; state which with "
            f"{_parameter(meaning)}",
        )
    return named[0] if named else None


def _captions(header: Sequence[str], stated: Sequence[str]) -> tuple[str, ...]:
    if stated:
        return tuple(_stated("caption", header, name) for name in stated)
    if {"caption", "captions"} <= set(header):
        raise RowFault(
            "columns",
            "found 'caption' and 'captions'; expected only one, with a text or a list of texts; "
            "state which with `caption_columns=...`",
        )
    numbered: dict[str, list[tuple[int, str]]] = {}
    for name in header:
        if match := _NUMBERED.fullmatch(name.strip()):
            numbered.setdefault(match[1].lower(), []).append((int(match[2]), name))
    plain = _one("caption", header)
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
        raise _missing("caption", header)
    return names


def _stated(meaning: str, header: Sequence[str], name: str) -> str:
    same = [column for column in header if column.strip().lower() == name.strip().lower()]
    if name in header or len(same) == 1:
        return name if name in header else same[0]
    close = get_close_matches(name, header, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise RowFault(
        "columns", f"{_parameter(meaning, name)}: not one of the columns {_quoted(header)}{meant}"
    )


def _missing(meaning: str, header: Sequence[str]) -> RowFault:
    lower = {name.strip().lower(): name for name in header}
    if meaning == "path" and (addresses := [lower[a] for a in _ADDRESSES if a in lower]):
        return RowFault(
            "columns",
            f"the column {addresses[0]!r} has addresses, and nothing is downloaded here; download "
            "the images first (for example with img2dataset), and list their paths in a column "
            "`path`",
        )
    names = [name for name in lower if not any(name in aliases for aliases in KNOWN.values())]
    close = [name for name in names if get_close_matches(name, KNOWN[meaning], n=1, cutoff=0.7)]
    meant = f"; did you mean {_parameter(meaning, lower[close[0]])}?" if close else ";"
    return RowFault(
        "columns",
        f"no column of {meaning}s among {_quoted(header)}{meant} one of "
        f"{', '.join(KNOWN[meaning])} is recognised, others are stated with {_parameter(meaning)}",
    )


def _parameter(meaning: str, value: str = "...") -> str:
    return f"`caption_columns={value}`" if meaning == "caption" else f"`{meaning}_column={value}`"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
