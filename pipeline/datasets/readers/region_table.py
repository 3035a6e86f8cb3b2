"""User-provided images with boxes: a folder, and a CSV or JSONL file of phrases and boxes."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.phrases import Box, check_box, photo_size
from pipeline.datasets.readers.collector import Collector
from pipeline.datasets.readers.tables.table import RowFault
from pipeline.datasets.readers.tables.text_tables import read_delimited
from pipeline.datasets.source import caption_line, located_lines, media_file, parse_json
from pipeline.datasets.splits import SHARES, split_by_hash

_SIDES = ("x0", "y0", "x1", "y1")
_REQUIRED = ("image", "phrase", *_SIDES)
_OPTIONAL = ("type", "chain", "split")


class _Row(NamedTuple):
    """A line: a phrase of an image with its box; "" for missing values."""

    image: str
    phrase: str
    box: Box
    type: str
    chain: str
    split: str
    where: str


def read_regions(
    root: str | Path, table: str | Path, *, name: str, expect: Mapping[str, int] | None = None
) -> Manifest:
    """Read your own boxes from a CSV or JSONL file: image, phrase, x0, y0, x1, y1.

    Each line has one phrase with its box, in pixels of the original image, from 0, right and bottom
    exclusive; the columns type, chain (equal for all phrases about the same thing in an image) and
    split are optional. An image's id is its path; images are in order of first appearance and have
    no captions. Without splits, images are split 80/10/10 by the hash of their id.

    Parameters
    ----------
    root : str or Path. Folder of the images.
    table : str or Path. CSV or JSONL file of images, phrases and boxes.
    name : str. Name of the dataset.
    expect : mapping of str to int, or None. Required number of images of a split.

    Returns
    -------
    Manifest
        The dataset; `Manifest.write` stores it.

    Raises
    ------
    DatasetError
        The file is missing or of another format; a line is malformed, has no phrase or image file,
        or has a box without area or outside its image; lines of one image differ in split, or only
        some have one; a split has another number of images. The line is named.

    Examples
    --------
    >>> dataset = pipeline.read_regions("photos", "boxes.csv", name="mine")  # doctest: +SKIP
    >>> dataset.write("data/mine")  # doctest: +SKIP
    """
    root, table = Path(root), Path(table)
    rows = _csv_rows(table) if table.suffix.lower() == ".csv" else _jsonl_rows(table)
    found = Collector(root)
    first: dict[str, _Row] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for row in rows:
        image = media_file(root, row.image, row.where)
        if row.split:
            found.split(row.split, row.where)
        before = first.setdefault(image, row)
        other = before if before.split != row.split else next(iter(first.values()))
        if before.split != row.split or bool(other.split) != bool(row.split):
            raise DatasetError(
                f"{row.where}: the split is {row.split!r} here and {other.split!r} in "
                f"{other.where}; an image needs one split, and all lines or none need one"
            )
        if image not in sizes:
            sizes[image] = photo_size(root / image)
        if reason := check_box(row.box, sizes[image]):
            raise DatasetError(
                f"{row.where}: the box {list(row.box)} {reason}; expected x0 y0 x1 y1 in original "
                "pixels, 0-based, right and bottom exclusive"
            )
        phrase = caption_line(row.phrase, f"{row.where}: the phrase")
        types = (row.type,) if row.type else ()
        found.add_phrase(
            image, phrase, (row.box,), sizes[image], types=types, thing=row.chain or None
        )
    splits = {image: row.split for image, row in first.items()}
    by_hash = not all(splits.values())
    if by_hash:
        splits = split_by_hash(splits, SHARES)
    for image, split in splits.items():
        found.add(image, image, split, (), first[image].where)
    return found.manifest(
        name,
        [table],
        expect,
        source=f"image folder and {table.name}",
        licence="not stated by the source",
        notes={"split_by_hash_of_id": SHARES} if by_hash else {},
        with_phrases=True,
    )


def _csv_rows(path: Path) -> Iterator[_Row]:
    table = read_delimited(path, _check_columns)
    for number, row in table.records:
        where = table.place(number)
        if isinstance(row, RowFault):
            raise DatasetError(f"{where}: {row}")
        try:
            x0, y0, x1, y1 = (float(row[side]) for side in _SIDES)
        except ValueError:
            values = ",".join(row[side] for side in _SIDES)
            raise DatasetError(
                f"{where}: the box {values!r} is not four numbers, x0 y0 x1 y1"
            ) from None
        optional = {name: row.get(name, "").strip() for name in _OPTIONAL}
        yield _Row(row["image"].strip(), row["phrase"], (x0, y0, x1, y1), **optional, where=where)


def _check_columns(header: Sequence[str]) -> None:
    if missing := [column for column in _REQUIRED if column not in header]:
        raise RowFault("columns", f"missing columns: {', '.join(missing)}")


class _Record(msgspec.Struct):
    """A line of a JSONL file; see `read_regions`."""

    image: str
    phrase: str
    x0: float
    y0: float
    x1: float
    y1: float
    type: str | int | None = None
    chain: str | int | None = None
    split: str | int | None = None


def _jsonl_rows(path: Path) -> Iterator[_Row]:
    if path.suffix.lower() not in (".jsonl", ".ndjson"):
        raise DatasetError(f"{path}: expected a name ending in .csv or .jsonl; rename the file")
    for where, line in located_lines(path):
        record = parse_json(line, where, _Record)
        optional = {name: str(getattr(record, name) or "") for name in _OPTIONAL}
        box = record.x0, record.y0, record.x1, record.y1
        yield _Row(record.image, record.phrase, box, **optional, where=where)
