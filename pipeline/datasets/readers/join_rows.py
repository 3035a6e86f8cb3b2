"""Conversion of tables or file names to a manifest."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import check_counts, check_entries
from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.datasets.manifest import Manifest, Media
from pipeline.datasets.metadata import columns_of, without_columns
from pipeline.datasets.readers.joined_images import JoinedImage, JoinedImages
from pipeline.datasets.readers.tables.open_tables import TableOptions
from pipeline.datasets.readers.tables.paths import PathResolver
from pipeline.datasets.readers.tables.rows import Row, RowReader
from pipeline.datasets.readers.tables.stored_images import StoredImages
from pipeline.datasets.readers.tables.table import RejectedRows, RowFault, Table
from pipeline.datasets.splits import SHARES, split_by_hash
from pipeline.store.inner_files import unpacked_path
from pipeline.store.objects.urls import common_folder, url_of


@dataclass(frozen=True)
class Description:
    """Values of a manifest besides its entries."""

    name: str
    source: str
    notes: dict[str, Any] = field(default_factory=dict)  # those that do not depend on the rows
    expect: Mapping[str, int] = field(default_factory=dict)
    media: Media = "images"


def manifest_of_tables(
    tables: Iterable[Table],
    root: Path | None,
    description: Description,
    options: TableOptions,
    rejected: RejectedRows,
    images: StoredImages | None = None,
) -> Manifest:
    """Join rows of tables by path: one image per path, in order of first appearance.

    `root` None: the common folder of all paths if they are absolute, else the current folder.
    If images are stored in the tables, the folder of `images` is the root.
    """
    unit = description.media.removesuffix("s")
    reader = RowReader(options.columns, rejected, images, options.caption_separator)
    opened: list[Table] = []

    def read() -> Iterator[Row]:
        for table in tables:
            opened.append(table)
            yield from reader.rows(table)

    # The first row decides whether images are stored in the records, and so the image root.
    rows = read()
    first = next(rows, None)
    if reader.images_inside and images is not None:
        root = images.folder
    all_rows: Iterable[Row] = rows if first is None else chain([first], rows)
    if root is None:
        all_rows = list(all_rows)
        root = _common_folder([row.path for row in all_rows])
    resolver = PathResolver(root, unit)
    joined = JoinedImages(resolver, unit, rejected, options)
    for row in all_rows:
        try:
            joined.add(row)
        except RowFault as error:
            rejected.add(row.table, row.number, error, row.path)
    rejected.check(len(joined.images))
    notes = {**description.notes, **joined.notes(), **resolver.notes(), **_notes_of(opened, reader)}
    notes |= rejected.notes()
    left_out = joined.varying | set(notes.get("columns_ignored", ()))
    metadata = without_columns(((i.id, i.metadata) for i in joined.images.values()), left_out)
    if metadata:
        notes["metadata_columns"] = columns_of(metadata)
    if joined.varying:
        notes["columns_that_differ_within_an_image"] = sorted(joined.varying)
    return replace(_manifest(root, joined.images, description, notes), metadata=metadata)


def manifest_of_files(
    root: Path,
    files: Iterable[str],
    description: Description,
    split_of: Callable[[str], str | None],
    rejected: RejectedRows,
) -> Manifest:
    """Return a manifest of images without captions, with paths as ids.

    Each tar file counts as a folder of its name, in ids.
    `split_of` returns the split of a path, or None to use the path's hash, or raises `RowFault`.
    """
    table = Table(str(root), "file", iter(()))
    images: dict[str, JoinedImage] = {}
    for number, file in enumerate(files, start=1):
        try:
            images[file] = JoinedImage(unpacked_path(file), split_of(file), table.place(number))
        except RowFault as error:
            rejected.add(table, number, error, file)
    rejected.check(len(images))
    return _manifest(root, images, description, description.notes | rejected.notes())


def _common_folder(paths: list[str]) -> Path:
    if not paths or not all(path.startswith("/") or url_of(path) for path in paths):
        return Path()
    return common_folder(map(Path, paths))


def _notes_of(tables: Iterable[Table], reader: RowReader) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    ignored = set(reader.ignored)
    members: Counter[str] = Counter()
    for table in tables:
        notes |= table.notes
        ignored.update(table.notes.get("columns_ignored", ()))
        members.update(table.notes.get("members_ignored", {}))
    notes |= {
        "columns_ignored": sorted(ignored),
        "members_ignored": dict(sorted(members.items())),
        "columns_recognised": reader.recognised,
        "empty_caption_cells": reader.empty_cells,
        "caption_cells_split": reader.split_cells,
    }
    return {key: value for key, value in notes.items() if value}


def _manifest(
    root: Path, images: Mapping[str, JoinedImage], description: Description, notes: dict[str, Any]
) -> Manifest:
    by_hash: dict[str, str] = {}
    if any(image.split is None for image in images.values()):
        by_hash = split_by_hash((image.id for image in images.values()), SHARES)
        notes["split_by_hash_of_id"] = SHARES
    media = description.media
    manifest = Manifest(
        name=description.name,
        image_root=root,
        entries=PackedEntries.of(
            (
                ImageEntry(i.id, path, i.split or by_hash[i.id], tuple(i.captions))
                for path, i in images.items()
            ),
            partial(check_entries, unit=media.removesuffix("s")),
        ),
        licence="not stated by the source",
        source=description.source,
        notes=notes,
        media=media,
    )
    check_counts(description.name, manifest.counts, dict(description.expect))
    return manifest
