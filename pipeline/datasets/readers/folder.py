"""Anybody's captioned images or clips: a folder and a CSV or JSONL file of paths and captions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pipeline.datasets.checks import (
    DatasetError,
    check_counts,
    check_entries,
    check_relative,
    check_split,
)
from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.datasets.manifest import Manifest, Media
from pipeline.datasets.source import (
    caption_line,
    media_file,
    parse_json,
    read_csv,
    read_lines,
    source_notes,
)
from pipeline.datasets.splits import split_by_hash

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
"""Splits of a source that names none."""

_COLUMNS = ("path", "caption", "split", "id")


@dataclass(frozen=True)
class _Row:
    """One line of the source; `split` and `id` are None where it has none."""

    path: str
    captions: list[str]
    split: str | None
    id: str | None
    where: str


@dataclass(slots=True)
class _Image:
    """What the lines of one path have said so far, and where the first of them is."""

    id: str
    split: str | None
    where: str
    captions: list[str] = field(default_factory=list)


def read_folder(
    root: str | Path,
    captions: str | Path,
    *,
    name: str,
    expect: Mapping[str, int] | None = None,
    media: Media = "images",
) -> Manifest:
    """Read a CSV (header `path,caption[,split][,id]`) or JSONL file, one line a caption.

    Lines of the same path are one image, in the order of first appearance; its id is the path
    unless an id is given. JSONL lines may have a list `captions` in the place of `caption`.
    Without splits, images are split 80/10/10 into train, val and test by the hash of their id.
    Other columns or keys are left out and named in the notes.

    Parameters
    ----------
    root : the image root, which the paths are relative to.
    captions : file ending in .csv, .jsonl or .ndjson.
    name : the dataset's name.
    expect : number of images that a split must have.
    media : what the paths lead to: pictures, or clips with or without sound. No file is opened.

    Raises
    ------
    DatasetError
        The file is missing or of another kind; a line is malformed, has no caption or no image
        file; lines of one path differ in split or id; an id has two paths; some lines have a
        split and others none; a split has another number of images. The line is named.
    """
    root, captions = Path(root), Path(captions)
    ignored: set[str] = set()
    if captions.suffix.lower() == ".csv":
        rows = _csv_rows(captions, ignored)
    elif captions.suffix.lower() in (".jsonl", ".ndjson"):
        rows = _jsonl_rows(captions, ignored)
    else:
        raise DatasetError(f"{captions}: the name ends in neither .csv nor .jsonl; rename the file")
    images, mended = _join_rows(root, rows, media.removesuffix("s"))
    notes = source_notes([captions], mended)
    if ignored:
        notes["columns_ignored"] = sorted(ignored)
    by_hash: dict[str, str] = {}
    if any(image.split is None for image in images.values()):
        by_hash = split_by_hash((image.id for image in images.values()), SHARES)
        notes["split_by_hash_of_id"] = SHARES
    manifest = Manifest(
        name=name,
        image_root=root,
        entries=PackedEntries.of(
            (
                ImageEntry(i.id, path, i.split or by_hash[i.id], tuple(i.captions))
                for path, i in images.items()
            ),
            partial(check_entries, unit=media.removesuffix("s")),
        ),
        licence="not stated by the source",
        source=f"{media.removesuffix('s')} folder and {captions.name}",
        notes=notes,
        media=media,
    )
    check_counts(name, manifest.counts, dict(expect or {}))
    return manifest


def _join_rows(root: Path, rows: Iterator[_Row], unit: str) -> tuple[dict[str, _Image], int]:
    """Return the images by path, and the number of captions that had blanks cut."""
    images: dict[str, _Image] = {}
    path_of: dict[str, str] = {}
    mended = 0
    first: _Row | None = None
    for row in rows:
        first = first or row
        if (row.split is None) != (first.split is None):
            with_split, without = (first, row) if row.split is None else (row, first)
            raise DatasetError(
                f"{with_split.where} has a split and {without.where} has none; give all lines a "
                "split or none"
            )
        if row.split is not None and (fault := check_split(row.split)):
            raise DatasetError(f"{row.where}: split {row.split!r} {fault}")
        if row.id is not None and (fault := check_relative(row.id)):
            raise DatasetError(f"{row.where}: id {row.id!r} {fault}; ids are used like paths")
        path = row.path
        if path not in images:
            path = media_file(root, path, row.where, unit)
        image = images.setdefault(path, _Image(row.id or path, row.split, row.where))
        if path_of.setdefault(image.id, path) != path:
            raise DatasetError(
                f"{row.where}: id {image.id!r} belongs to {path_of[image.id]!r} before, in "
                f"{images[path_of[image.id]].where}; every {unit} needs an id of its own"
            )
        for what, here, before in (
            ("split", row.split, image.split),
            ("id", row.id or path, image.id),
        ):
            if here != before:
                raise DatasetError(
                    f"{row.where}: {unit} {path!r} has {what} {here!r} here and {before!r} in "
                    f"{image.where}; an entry has one {what}"
                )
        for text in row.captions:
            image.captions.append(caption := caption_line(text, row.where))
            mended += caption != text
    return images, mended


def _csv_rows(path: Path, ignored: set[str]) -> Iterator[_Row]:
    """Yield the rows of a CSV file; columns that mean nothing here are added to `ignored`."""
    for row, where in read_csv(path, ("path", "caption"), "path,caption,split"):
        ignored.update(set(row) - set(_COLUMNS))
        yield _Row(
            row["path"].strip(),
            [row["caption"]],
            row.get("split", "").strip() or None,
            row.get("id", "").strip() or None,
            where,
        )


class _Record(msgspec.Struct):
    """A line of a JSONL file; see `read_folder`."""

    path: str
    caption: str | None = None
    captions: list[str] | None = None
    split: str = ""
    id: str = ""


def _jsonl_rows(path: Path, ignored: set[str]) -> Iterator[_Row]:
    """Yield the rows of a JSONL file; keys that mean nothing here are added to `ignored`."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        ignored.update(set(parse_json(line, where, dict[str, Any])) - {*_COLUMNS, "captions"})
        found = parse_json(line, where, _Record)
        if (found.caption is None) == (found.captions is None) or found.captions == []:
            raise DatasetError(
                f"{where}: one of 'caption' and 'captions', a list of one text or more, was "
                "expected, not both"
            )
        captions = found.captions or [found.caption or ""]
        split, image_id = found.split.strip() or None, found.id.strip() or None
        yield _Row(found.path, captions, split, image_id, where)
