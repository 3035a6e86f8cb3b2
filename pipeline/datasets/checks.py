"""What ids, files, splits and captions must be, and the error of a dataset that is not so."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from pipeline.datasets.entries import ImageEntry
from pipeline.errors import PipelineError

# Most paths by far; the others are looked at more closely.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class DatasetError(PipelineError):
    """A dataset, or a source file that one is made from, is not as its format says."""


def check_relative(path: str) -> str | None:
    """Return the reason why `path` is no path below a root; None if it is.

    The check is lexical, so it needs no file system: no absolute path, no `..`, no backslash,
    no control character.
    """
    if _PLAIN_PATH.fullmatch(path):
        return None
    if not path or path != path.strip():
        return "is empty or has blanks at an end"
    if not path.isprintable():
        return "has control characters"
    if "\\" in path:
        return "has a backslash (use forward slashes)"
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", path):
        return "leaves the image root"
    return None


def check_caption(text: str) -> str | None:
    """Return the reason why `text` is no caption; None if it is."""
    if text.isprintable() and text.strip():
        return None
    if not text.strip():
        return "is empty"
    if len(text.splitlines()) != 1:
        return "has a line break"
    if any(c == "\x00" or "\ud800" <= c <= "\udfff" for c in text):
        return "has a NUL or half a surrogate pair, which is no text"
    return None


def check_split(name: str) -> str | None:
    """Return the reason why `name` is no name of a split; None if it is."""
    return None if _SPLIT.fullmatch(name) else "is no plain name (letters, digits, _ . -)"


def check_entries(entries: Sequence[ImageEntry], unit: str) -> None:
    """Check what every entry must have; `unit` is what it is, for messages.

    Raises
    ------
    DatasetError
    """
    captions = [text for entry in entries for text in entry.captions]
    sound = (
        all(map(_PLAIN_PATH.fullmatch, {name for e in entries for name in (e.id, e.file)}))
        and all(map(_SPLIT.fullmatch, {entry.split for entry in entries}))
        and "".join(captions).isprintable()
        and all(map(str.strip, captions))
    )
    # All at once for speed; what may be wrong is looked at one by one.
    for entry in () if sound else entries:
        _check_entry(entry, unit)


def _check_entry(entry: ImageEntry, unit: str) -> None:
    for what, text in (("id", entry.id), ("file", entry.file)):
        if fault := check_relative(text):
            raise DatasetError(
                f"{unit} {entry.id!r}: its {what} {text!r} {fault}; ids and files must stay below "
                "the image root"
            )
    if fault := check_split(entry.split):
        raise DatasetError(f"{unit} {entry.id!r}: split {entry.split!r} {fault}")
    for k, caption in enumerate(entry.captions):
        if fault := check_caption(caption):
            raise DatasetError(f"{unit} {entry.id!r}: caption {k} {fault}")


def check_counts(name: str, counts: dict[str, int], expected: dict[str, int]) -> None:
    """Assert the number of images in each split named in `expected`.

    Raises
    ------
    DatasetError
        A split has another number of images; all splits that differ are named.
    """
    wrong = [
        f"{split}: {counts.get(split, 0)} found, {number} expected"
        for split, number in expected.items()
        if counts.get(split, 0) != number
    ]
    if wrong:
        raise DatasetError(
            f"dataset {name!r} has other counts than expected ({'; '.join(wrong)}); check that the "
            "download is whole, or state the counts that you mean"
        )
