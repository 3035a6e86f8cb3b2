"""MS-COCO captions and boxes in COCO's annotation format, one JSON file per split."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import msgspec

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.coco_boxes import add_instances
from pipeline.datasets.readers.collector import Collector
from pipeline.datasets.source import read_json


def read_coco(
    root: str | Path,
    captions: Sequence[tuple[str | None, str | Path]],
    *,
    split: str = "val",
    folders: Mapping[str, str] | None = None,
    boxes: Sequence[str | Path] = (),
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read captions, and optionally boxes, in MS-COCO's annotation format.

    An image's id is COCO's number as text. Images and captions keep the order of `images` and
    `annotations` in their file; all captions of an image are kept. Each box of a captioned image
    becomes a phrase: its text is the category, its type the supercategory; boxes of crowds and
    boxes without area are skipped and counted.

    Parameters
    ----------
    root : str or Path. Folder of the images.
    captions : sequence of (str or None, str or Path). Caption file and its split; a split may have
        several files.
    split : str. Split of caption files without a stated split.
    folders : mapping of str to str, or None. Folder of a split's images below the root; default:
        the root itself.
    boxes : sequence of str or Path. Instance file, which adds phrases with boxes.
    expect : mapping of str to int, or None. Required number of images of a split.

    Returns
    -------
    Manifest
        The dataset; `Manifest.write` stores it.

    Raises
    ------
    DatasetError
        A file is missing or not JSON, an entry is malformed or repeated, an image is missing or has
        no caption, a box leaves its image, or a split has another number of images. Entries are
        named by index, `images[12]`.

    Examples
    --------
    >>> pipeline.read_coco(
    ...     "coco", [("val", "annotations/captions_val2017.json")], folders={"val": "val2017"}
    ... )  # doctest: +SKIP
    """
    root, folders = Path(root), folders or {}
    if isinstance(captions, str | Path):
        captions = [(None, captions)]
    files = [(of_file or split, Path(path)) for of_file, path in captions]
    if unknown := sorted(set(folders) - {name for name, _ in files}):
        raise DatasetError(
            f"image folders are specified for the splits {unknown}, which have no caption file"
        )
    found = Collector(root)
    licences: Counter[str] = Counter()
    for name, path in files:
        document = read_json(path, _Document)
        named = {
            str(licence.id): f"{licence.name} ({licence.url})" if licence.url else licence.name
            for licence in document.licenses
        }
        places = {}
        for index, image in enumerate(document.images):
            places[str(image.id)] = f"{path}: images[{index}]"
            found.once(str(image.id), f"{path}: images[{index}]")
        texts = _captions_of(document.annotations, path, places.keys(), found)
        for image in document.images:
            image_id, where = str(image.id), places[str(image.id)]
            if image_id not in texts:
                raise DatasetError(f"{where}: image {image_id!r} has no caption in `annotations`")
            below = f"{folders[name]}/" if name in folders else ""
            found.add(image_id, below + image.file_name, name, texts[image_id], where)
            licences[named.get(str(image.license), "not stated")] += 1
    left_out = add_instances([Path(path) for path in boxes], found)
    return found.manifest(
        "coco",
        [*(path for _, path in files), *map(Path, boxes)],
        expect,
        source="COCO caption files " + ", ".join(path.name for _, path in files),
        licence="; ".join(f"{name}: {n} images" for name, n in sorted(licences.items())),
        notes={"boxes_left_out": dict(left_out)} if left_out else {},
        with_phrases=bool(boxes),
    )


def _captions_of(
    annotations: "Sequence[_Annotation]",
    path: Path,
    image_ids: Set[str],
    found: Collector,
) -> dict[str, list[str]]:
    """Return the captions by image id in file order."""
    texts: dict[str, list[str]] = {}
    seen: dict[int | str, int] = {}
    for index, annotation in enumerate(annotations):
        where = f"{path}: annotations[{index}]"
        if (first := seen.setdefault(annotation.id, index)) != index:
            raise DatasetError(
                f"{where}: duplicate annotation id {annotation.id}, first in "
                f"annotations[{first}]; remove the copy"
            )
        image_id = str(annotation.image_id)
        if image_id not in image_ids:
            raise DatasetError(
                f"{where}: image_id {image_id!r} is not in `images`; check that the file is "
                "complete"
            )
        texts.setdefault(image_id, []).append(found.caption(annotation.caption, where))
    return texts


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
