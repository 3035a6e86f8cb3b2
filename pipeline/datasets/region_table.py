"""User-provided images with boxes: a folder, and a CSV or JSONL file of phrases and boxes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline.datasets.checks import DatasetError, check_counts, check_split
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.phrases import Box, RegionPhrase, check_box, photo_size
from pipeline.datasets.readers.tables.delimited import read_delimited
from pipeline.datasets.readers.tables.table import RowFault
from pipeline.datasets.source import (
    caption_line,
    located_lines,
    media_file,
    parse_json,
    source_notes,
)
from pipeline.datasets.splits import SHARES, split_by_hash

_SIDES = ("x0", "y0", "x1", "y1")
_REQUIRED = ("image", "phrase", *_SIDES)
_OPTIONAL = ("type", "chain", "split")


@dataclass(frozen=True)
class _Row:
    """A line: a phrase of an image with its box; "" for missing values."""

    image: str
    phrase: str
    box: Box
    type: str
    chain: str
    split: str
    where: str


def read_regions(
    root: str | Path, regions: str | Path, *, name: str, expect: Mapping[str, int] | None = None
) -> Manifest:
    """Read a CSV or JSONL file with one phrase and its box per line.

    Columns or keys are image (path below `root`, also used as id), phrase, x0, y0, x1, y1 in
    original pixels, 0-based, right and bottom exclusive; optionally type, chain (equal for all
    phrases about the same thing in an image) and split. Without splits, images are split 80/10/10
    by the hash of their id. Images are in order of first appearance and have no captions.

    Parameters
    ----------
    root : str or Path. The image root.
    regions : str or Path. File ending in .csv, .jsonl or .ndjson.
    name : str. The dataset's name.
    expect : mapping of str to int, or None. Required number of images by split.

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
    root, regions = Path(root), Path(regions)
    rows = _csv_rows(regions) if regions.suffix.lower() == ".csv" else _jsonl_rows(regions)
    first: dict[str, _Row] = {}
    sizes: dict[str, tuple[int, int]] = {}
    phrases: dict[str, list[RegionPhrase]] = {}
    for row in rows:
        image = media_file(root, row.image, row.where)
        if row.split and (reason := check_split(row.split)):
            raise DatasetError(f"{row.where}: split {row.split!r} {reason}")
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
        of_image = phrases.setdefault(image, [])
        of_image.append(
            RegionPhrase(
                id=f"{image}#p{len(of_image)}",
                image=image,
                phrase=caption_line(row.phrase, f"{row.where}: the phrase"),
                types=(row.type,) if row.type else (),
                chain=row.chain or None,
                caption=None,
                boxes=(row.box,),
                size=sizes[image],
            )
        )
    notes = source_notes([regions], 0)
    splits = {image: row.split for image, row in first.items()}
    if not all(splits.values()):
        splits = split_by_hash(splits, SHARES)
        notes["split_by_hash_of_id"] = SHARES
    manifest = Manifest(
        name=name,
        image_root=root,
        entries=tuple(ImageEntry(image, image, split, ()) for image, split in splits.items()),
        licence="not stated by the source",
        source=f"image folder and {regions.name}",
        notes=notes,
        phrases=tuple(phrase for image in first for phrase in phrases[image]),
    )
    check_counts(name, manifest.counts, dict(expect or {}))
    return manifest


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
