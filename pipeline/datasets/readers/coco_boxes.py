"""Boxes of MS-COCO instances as phrases: category names with boxes."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.phrases import Box, check_box
from pipeline.datasets.readers.collector import Collector
from pipeline.datasets.source import read_json

# Boxes are rounded to a hundredth of a pixel and may leave the image by that.
_ROUNDING = 0.02


def add_instances(paths: Sequence[Path], found: Collector) -> Counter[str]:
    """Add the boxes of the images in file order as phrases; return the counts of others."""
    captioned = {entry.id for entry in found.entries}
    left_out: Counter[str] = Counter()
    for path in paths:
        document = read_json(path, _Document)
        categories = {category.id: category for category in document.categories}
        sizes = {str(image.id): (image.width, image.height) for image in document.images}
        for index, thing in enumerate(document.annotations):
            where = f"{path}: annotations[{index}]"
            image, category = str(thing.image_id), categories.get(thing.category_id)
            if image not in sizes or category is None:
                raise DatasetError(
                    f"{where}: image_id {image!r} or category_id {thing.category_id!r} is not in "
                    "the file; check that it is complete"
                )
            box = _box(thing.bbox, sizes[image], where)
            if image not in captioned:
                left_out["of images without captions"] += 1
            elif thing.iscrowd:
                left_out["of crowds"] += 1
            elif box is None:
                left_out["without an area"] += 1
            else:
                types = (category.supercategory,) if category.supercategory else ()
                found.add_phrase(
                    image, category.name, (box,), sizes[image], types=types, thing=str(thing.id)
                )
    return left_out


class _Category(msgspec.Struct):
    id: int
    name: str
    supercategory: str = ""


class _Image(msgspec.Struct):
    id: int | str
    width: int
    height: int


class _Annotation(msgspec.Struct):
    id: int | str
    image_id: int | str
    category_id: int
    bbox: Box
    iscrowd: int | bool = 0


class _Document(msgspec.Struct):
    categories: list[_Category]
    images: list[_Image]
    annotations: list[_Annotation]


def _box(values: Box, size: tuple[int, int], where: str) -> Box | None:
    """Return a box from x, y, width, height, 0-based; None if it has no area."""
    x, y, width, height = values
    if width <= 0 or height <= 0:
        return None
    x1, y1 = (
        float(side) if 0 < end - side <= _ROUNDING else end
        for end, side in ((round(x + width, 2), size[0]), (round(y + height, 2), size[1]))
    )
    if reason := check_box((x, y, x1, y1), size):
        raise DatasetError(f"{where}: bbox {list(values)} {reason}; correct the file")
    return x, y, x1, y1
