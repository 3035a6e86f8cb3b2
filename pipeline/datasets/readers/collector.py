"""The entries of a published dataset as its reader finds them: checks that all readers share."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError, check_counts, check_split
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.links import LINKS_FOLLOWED, is_below, own_folders
from pipeline.datasets.manifest import Manifest, Media
from pipeline.datasets.phrases import Box, RegionPhrase
from pipeline.datasets.readers.tables.caption_cells import texts_of
from pipeline.datasets.readers.tables.table import RowFault
from pipeline.datasets.source import caption_line, caption_notes, media_file, source_notes

FIRST_SPLITS = {"train": 0, "dev": 1, "val": 1, "test": 2}
"""Order of splits whose source has none; others follow by name."""


class Collector:
    """Collects entries; an error begins with `where`, the location in the source."""

    def __init__(self, root: Path, media: Media = "images") -> None:
        self.entries: list[ImageEntry] = []
        self._root, self._media, self._unit = root, media, media.removesuffix("s")
        self._first: dict[str, str] = {}
        self._id_of: dict[str, str] = {}  # by file
        self._own, self._folders = own_folders(root), set[Path]()
        self._links_leave = False
        self._phrases: dict[str, list[RegionPhrase]] = {}
        self._changed = 0

    def once(self, entry_id: str, where: str) -> None:
        """Raise if an id occurred before."""
        if entry_id in self._first:
            raise DatasetError(
                f"{where}: duplicate {self._unit} {entry_id!r}, first in {self._first[entry_id]}; "
                "an id occurs once: remove the copy"
            )
        self._first[entry_id] = where

    def split(self, name: str, where: str) -> str:
        """Return the name of a split; raise if it is invalid."""
        if reason := check_split(name):
            raise DatasetError(f"{where}: split {name!r} {reason}")
        return name

    def caption(self, text: str, where: str) -> str:
        """Return a caption as one line, and count changed ones; raise if it is a list of texts."""
        with suppress(RowFault):
            if texts_of(text, "caption") != [text]:
                raise DatasetError(
                    f"{where}: the caption is a list of texts, {text!r:.60}; write an entry for "
                    "each, or use `pipeline prepare folder`"
                )
        line = caption_line(text, where)
        self._changed += line != text
        return line

    def add(
        self, entry_id: str, file: str, split: str, captions: Iterable[str], where: str
    ) -> ImageEntry:
        """Add an entry whose file exists below the root."""
        file = media_file(self._root, file, where, self._unit)
        if (other := self._id_of.setdefault(file, entry_id)) != entry_id:
            raise DatasetError(
                f"{where}: {self._unit} {entry_id!r} has the file {file!r}, which is that of "
                f"{other!r}; a file has one entry: remove the other"
            )
        path = self._root / file
        if path.is_symlink() or path.parent not in self._folders:
            self._folders.add(path.parent)
            self._links_leave |= not is_below(path, self._own)
        self.entries.append(ImageEntry(entry_id, file, split, tuple(captions)))
        return self.entries[-1]

    def add_phrase(
        self,
        image: str,
        phrase: str,
        boxes: tuple[Box, ...],
        size: tuple[int, int],
        *,
        types: tuple[str, ...] = (),
        thing: str | None = None,
        caption: str | None = None,
    ) -> None:
        """Add a phrase with its boxes, numbered in its image; `thing` is its chain."""
        of_image = self._phrases.setdefault(image, [])
        name = f"{image}#p{len(of_image)}"
        of_image.append(RegionPhrase(name, image, phrase, types, thing, caption, boxes, size))

    def manifest(
        self,
        name: str,
        files: Iterable[Path],
        expect: Mapping[str, int] | None,
        *,
        source: str,
        licence: str,
        notes: Mapping[str, Any] | None = None,
        with_phrases: bool = False,
    ) -> Manifest:
        """Return the dataset of all entries; raise if a split has another number than expected."""
        manifest = Manifest(
            name=name,
            image_root=self._root,
            entries=tuple(self.entries),
            licence=licence,
            source=source,
            notes=source_notes(files)
            | caption_notes(self._changed, (entry.captions for entry in self.entries))
            | ({LINKS_FOLLOWED: True} if self._links_leave else {})
            | dict(notes or {}),
            phrases=tuple(chain.from_iterable(self._phrases.values())) if with_phrases else None,
            media=self._media,
        )
        check_counts(name, manifest.counts, dict(expect or {}))
        return manifest


def in_split_order(splits: Iterable[str]) -> list[str]:
    """Return names of splits as train, dev or val, test, then others by name."""
    return sorted(splits, key=lambda name: (FIRST_SPLITS.get(name, 3), name))
