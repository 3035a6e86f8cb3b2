"""Boxes of MS-COCO instances as phrases: category names with boxes."""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.phrases import Box, RegionPhrase, check_box
from pipeline.datasets.source import read_json

# Boxes are rounded to a hundredth of a pixel and may leave the image by that.
_ROUNDING = 0.02


def read_instances(
    paths: Sequence[Path], images: Collection[str]
) -> tuple[list[RegionPhrase], Counter[str]]:
    """Return boxes of images as phrases, in file order by image, and the counts of others."""
    phrases: dict[str, list[RegionPhrase]] = {}
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
            if image not in images:
                left_out["of images without captions"] += 1
            elif thing.iscrowd:
                left_out["of crowds"] += 1
            elif box is None:
                left_out["without an area"] += 1
            else:
                of_image = phrases.setdefault(image, [])
                of_image.append(
                    RegionPhrase(
                        id=f"{image}#p{len(of_image)}",
                        image=image,
                        phrase=category.name,
                        types=(category.supercategory,) if category.supercategory else (),
                        chain=str(thing.id),
                        caption=None,
                        boxes=(box,),
                        size=sizes[image],
                    )
                )
    return [phrase for of_image in phrases.values() for phrase in of_image], left_out


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
