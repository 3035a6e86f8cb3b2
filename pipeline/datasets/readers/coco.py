"""MS-COCO captions and boxes in COCO's annotation format, one JSON file per split."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pipeline.datasets.checks import DatasetError, check_counts
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.coco_boxes import read_instances
from pipeline.datasets.source import caption_line, media_file, read_json, source_notes


def read_coco(
    root: str | Path,
    captions: Sequence[tuple[str, str | Path]],
    *,
    folders: Mapping[str, str] | None = None,
    boxes: Sequence[str | Path] = (),
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read COCO caption files, and files of instances.

    An image's id is COCO's number as text. Images are in the order of `images` in their file,
    captions in the order of `annotations`; all captions of an image are kept.

    Parameters
    ----------
    root : str or Path. The image root.
    captions : sequence of (str, str or Path). (split, caption file) pairs; a split may have several
        files.
    folders : mapping of str to str, or None. Image folder below `root` by split, such as
        {"train": "train2017"}; default: `root` itself.
    boxes : sequence of str or Path. Instance files. Each box of an image is a phrase, the name of
        its category, whose type is the supercategory; boxes of crowds, of images without captions
        and without area are skipped and counted.
    expect : mapping of str to int, or None. Required number of images by split.

    Raises
    ------
    DatasetError
        A file is missing or not JSON (line and column are named); an entry lacks a key or has a
        value of the wrong type; ids repeat; an annotation's image is unknown; an image has no
        caption or no file; a box leaves its image; a split has another number of images. Entries
        are named by index, `images[12]`.

    Examples
    --------
    >>> pipeline.read_coco(
    ...     "coco", [("val", "annotations/captions_val2017.json")], folders={"val": "val2017"}
    ... )  # doctest: +SKIP
    """
    root = Path(root)
    files = [(split, Path(file)) for split, file in captions]
    folders = folders or {}
    if unknown := sorted(set(folders) - {split for split, _ in files}):
        raise DatasetError(
            f"image folders are specified for the splits {unknown}, which have no caption file"
        )
    entries: list[ImageEntry] = []
    seen: dict[str, str] = {}
    licences: Counter[str] = Counter()
    mended = 0
    for split, path in files:
        document = read_json(path, _Document)
        names = {
            str(licence.id): f"{licence.name} ({licence.url})" if licence.url else licence.name
            for licence in document.licenses
        }
        ids = _image_ids(document.images, path, seen)
        texts, changed = _captions_of(document.annotations, path, set(ids))
        mended += changed
        for image_id, image in zip(ids, document.images, strict=True):
            where = seen[image_id]
            if image_id not in texts:
                raise DatasetError(f"{where}: image {image_id!r} has no caption in `annotations`")
            below = f"{folders[split]}/" if split in folders else ""
            file = media_file(root, below + image.file_name, where)
            entries.append(ImageEntry(image_id, file, split, tuple(texts[image_id])))
            licences[names.get(str(image.license), "not stated")] += 1
    notes = source_notes([*(path for _, path in files), *map(Path, boxes)], mended)
    phrases = None
    if boxes:
        captioned = {entry.id for entry in entries}
        phrases, left_out = read_instances([Path(path) for path in boxes], captioned)
        if left_out:
            notes["boxes_left_out"] = dict(left_out)
    manifest = Manifest(
        name="coco",
        image_root=root,
        entries=tuple(entries),
        licence="; ".join(f"{name}: {n} images" for name, n in sorted(licences.items())),
        source="COCO caption files " + ", ".join(path.name for _, path in files),
        notes=notes,
        phrases=phrases,
    )
    check_counts(manifest.name, manifest.counts, dict(expect or {}))
    return manifest


class _Licence(msgspec.Struct):
    id: int | str
    name: str
    url: str | None = None


class _Image(msgspec.Struct):
    id: int | str
    file_name: str
    license: int | str | None = None


class _Annotation(msgspec.Struct):
    id: int | str
    image_id: int | str
    caption: str


class _Document(msgspec.Struct):
    images: list[_Image]
    annotations: list[_Annotation]
    licenses: list[_Licence] = []


def _image_ids(images: Sequence[_Image], path: Path, seen: dict[str, str]) -> list[str]:
    """Return the ids of `images` in file order, and add their locations to `seen`."""
    ids = [str(image.id) for image in images]
    for index, image_id in enumerate(ids):
        where = f"{path}: images[{index}]"
        if image_id in seen:
            raise DatasetError(
                f"{where}: duplicate image id {image_id!r}, first in {seen[image_id]}; ids must be "
                "unique over all caption files"
            )
        seen[image_id] = where
    return ids


def _captions_of(
    annotations: Sequence[_Annotation], path: Path, image_ids: set[str]
) -> tuple[dict[str, list[str]], int]:
    """Return the captions by image id in file order, and how many had surrounding blanks."""
    texts: dict[str, list[str]] = {}
    seen: dict[int | str, int] = {}
    mended = 0
    for index, annotation in enumerate(annotations):
        where = f"{path}: annotations[{index}]"
        if annotation.id in seen:
            raise DatasetError(
                f"{where}: duplicate annotation id {annotation.id}, first in "
                f"annotations[{seen[annotation.id]}]; remove the copy"
            )
        seen[annotation.id] = index
        image_id = str(annotation.image_id)
        if image_id not in image_ids:
            raise DatasetError(
                f"{where}: image_id {image_id!r} is not in `images`; check that the file is "
                "complete"
            )
        caption = caption_line(annotation.caption, where)
        mended += caption != annotation.caption
        texts.setdefault(image_id, []).append(caption)
    return texts, mended
