"""Validation of ids, files, splits and captions, and the error of an invalid dataset."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from pipeline.datasets.entries import ImageEntry
from pipeline.store.errors import PipelineError

# Most paths; the others are checked more closely.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class DatasetError(PipelineError):
    """A dataset, or one of its source files, does not match its format."""


def check_relative(path: str) -> str | None:
    """Return the reason why `path` is not a path below a root; None if it is.

    A lexical check without file access: no absolute path, no `..`, no backslash, no control
    character.
    """
    if _PLAIN_PATH.fullmatch(path):
        return None
    if not path or path != path.strip():
        return "is empty or has blanks at an end"
    if any("\ud800" <= c <= "\udfff" for c in path):
        return "is not UTF-8"
    if not path.isprintable():
        return "has control characters"
    if "\\" in path:
        return "has a backslash (use forward slashes)"
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", path):
        return "leaves the image root"
    return None


def check_caption(text: str) -> str | None:
    """Return the reason why `text` is not a caption; None if it is."""
    if text.isprintable() and text.strip():
        return None
    if not text.strip():
        return "is empty"
    if len(text.splitlines()) != 1:
        return "has a line break"
    if any(c == "\x00" or "\ud800" <= c <= "\udfff" for c in text):
        return "contains a NUL or an unpaired surrogate"
    return None


def check_split(name: str) -> str | None:
    """Return the reason why `name` is not a split name; None if it is."""
    return None if _SPLIT.fullmatch(name) else "is not a plain name (letters, digits, _ . -)"


def check_entries(entries: Sequence[ImageEntry], unit: str) -> None:
    """Raise unless every entry is valid; `unit` is the noun for an entry in messages."""
    captions = [text for entry in entries for text in entry.captions]
    sound = (
        all(map(_PLAIN_PATH.fullmatch, {name for e in entries for name in (e.id, e.file)}))
        and all(map(_SPLIT.fullmatch, {entry.split for entry in entries}))
        and "".join(captions).isprintable()
        and all(map(str.strip, captions))
    )
    # Vectorised for speed; only suspicious entries are checked one by one.
    for entry in () if sound else entries:
        _check_entry(entry, unit)


def _check_entry(entry: ImageEntry, unit: str) -> None:
    for what, text in (("id", entry.id), ("file", entry.file)):
        if reason := check_relative(text):
            raise DatasetError(
                f"{unit} {entry.id!r}: its {what} {text!r} {reason}; ids and files must stay below "
                "the image root"
            )
    if reason := check_split(entry.split):
        raise DatasetError(f"{unit} {entry.id!r}: split {entry.split!r} {reason}")
    for k, caption in enumerate(entry.captions):
        if reason := check_caption(caption):
            raise DatasetError(f"{unit} {entry.id!r}: caption {k} {reason}")


def check_counts(name: str, counts: dict[str, int], expected: dict[str, int]) -> None:
    """Raise unless each split named in `expected` has that number of images."""
    wrong = [
        f"{split}: {counts.get(split, 0)} found, {number} expected"
        for split, number in expected.items()
        if counts.get(split, 0) != number
    ]
    if wrong:
        raise DatasetError(
            f"dataset {name!r} has unexpected counts ({'; '.join(wrong)}); check that the download "
            "is complete, or state the right counts"
        )
