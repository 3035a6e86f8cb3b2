"""Table rows joined by path: an image has the captions of all its rows."""

from dataclasses import dataclass, field
from typing import Any

from pipeline.datasets.checks import check_caption, check_relative, check_split
from pipeline.datasets.manifest import Metadata
from pipeline.datasets.readers.tables.open_tables import TableOptions
from pipeline.datasets.readers.tables.paths import PathResolver
from pipeline.datasets.readers.tables.rows import Row
from pipeline.datasets.readers.tables.table import RejectedRows, RowFault
from pipeline.datasets.source import caption_notes, one_line
from pipeline.store.inner_files import name_of


@dataclass(slots=True)
class JoinedImage:
    """Values collected from the rows of one path, and the location of the first row."""

    id: str
    split: str | None
    where: str
    captions: list[str] = field(default_factory=list)
    metadata: Metadata = field(default_factory=dict)


class JoinedImages:
    """Images by path, and counts of what was changed."""

    def __init__(
        self,
        resolver: PathResolver,
        unit: str,
        rejected: RejectedRows,
        options: TableOptions,
    ) -> None:
        """Start empty; `unit` is the noun for an entry in messages."""
        self.images: dict[str, JoinedImage] = {}
        # Metadata columns with several values for one image, such as a caption number.
        self.varying: set[str] = set()
        self._resolver, self._unit, self._rejected = resolver, unit, rejected
        self._split_by_folder = options.split_by_folder
        self._id_is_stated, self._by_path = options.columns.id is not None, False
        self._path_of: dict[str, str] = {}
        self._first: Row | None = None
        self._mended = 0

    def add(self, row: Row) -> None:
        """Add a row; raise `RowFault` without adding anything if it is invalid."""
        path = row.path if row.path in self.images else self._resolver.resolve(row.path)
        image = self.images.get(path)
        if image is not None and self._numbers_lines(row.id, image.id):
            self._identify_by_path()
        split = self._split(row, path)
        image_id = name_of(path) if self._by_path else row.id or name_of(path)
        if image is None:
            self._check_id(row, image_id, path)
            image = JoinedImage(image_id, split, row.table.place(row.number))
        for what, here, before in (("split", split, image.split), ("id", image_id, image.id)):
            if here != before:
                reason = f"has {what} {here!r} here and {before!r} in {image.where}"
                raise RowFault(
                    f"another {what}", f"{self._unit} {path!r} {reason}; an entry has one {what}"
                )
        lines = self._lines(row)
        if lines:
            self._first = self._first or row
            self.images[path] = image
            self._path_of[image_id] = path
            image.captions += lines
        for name, value in row.metadata.items():
            if image.metadata.setdefault(name, value) != value:
                self.varying.add(name)

    def _numbers_lines(self, here: str | None, before: str) -> bool:
        """Return whether a detected column of ids numbers lines, as annotations, not images."""
        numbers = here is not None and here.isdecimal() and before.isdecimal()
        return numbers and here != before and not (self._by_path or self._id_is_stated)

    def _identify_by_path(self) -> None:
        self._by_path = True
        self.varying.add("id")
        for path, image in self.images.items():
            image.id = name_of(path)
        self._path_of = {image.id: path for path, image in self.images.items()}

    def notes(self) -> dict[str, Any]:
        """Return what was changed, without zeros."""
        notes: dict[str, Any] = {"split_by_folder": True} if self._split_by_folder else {}
        return notes | caption_notes(self._mended, (i.captions for i in self.images.values()))

    def _lines(self, row: Row) -> list[str]:
        """Return the valid captions of a row as lines; equal ones of annotators are all kept."""
        lines = []
        for text in row.captions:
            line = one_line(text)
            if reason := check_caption(line):
                error = RowFault("unusable caption", f"the caption {reason}")
                self._rejected.add(row.table, row.number, error, row.path)
            else:
                self._mended += line != text
                lines.append(line)
        return lines

    def _split(self, row: Row, path: str) -> str | None:
        first, split = self._first or row, row.split
        if (split is None) != (first.split is None):
            here, there = ("no split", "one") if split is None else ("a split", "none")
            raise RowFault(
                "split for some rows only",
                f"it has {here}, and {first.table.place(first.number)} has {there}; all or "
                "none of them need a split",
            )
        if split is not None and (reason := check_split(split)):
            raise RowFault("unusable split", f"split {split!r} {reason}")
        return first_folder(name_of(path)) if self._split_by_folder else split

    def _check_id(self, row: Row, image_id: str, path: str) -> None:
        if row.id is not None and not self._by_path and (reason := check_relative(row.id)):
            raise RowFault("unusable id", f"id {row.id!r} {reason}; ids are used like paths")
        if (other := self._path_of.get(image_id)) is not None:
            raise RowFault(
                "id of several images",
                f"id {image_id!r} belongs to {other!r} before, in {self.images[other].where}; "
                f"every {self._unit} needs an id of its own",
            )


def first_folder(path: str) -> str:
    """Return the first folder of a path as its split; raise `RowFault` if it is not valid."""
    folder, _, name = path.partition("/")
    if not name:
        raise RowFault("in no folder", f"{path!r} is in no folder, which would be its split")
    if reason := check_split(folder):
        raise RowFault("unusable split", f"the folder {folder!r} {reason}")
    return folder
