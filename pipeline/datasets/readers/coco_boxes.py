"""Boxes of MS-COCO's instances as phrases: the name of a category, and where one of it is."""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.phrases import Box, RegionPhrase, check_box
from pipeline.datasets.source import member, read_json

# Boxes are given to a hundredth of a pixel and may leave the image by the rounding.
_ROUNDING = 0.02


def read_instances(
    paths: Sequence[Path], images: Collection[str]
) -> tuple[tuple[RegionPhrase, ...], Counter[str]]:
    """Read files of instances; boxes there are x, y, width, height, from 0.

    Parameters
    ----------
    paths : the files.
    images : ids of the images whose boxes are wanted.

    Returns
    -------
    The phrases, by image in the order of the files, and how many boxes were left out and why.

    Raises
    ------
    DatasetError
        A file is missing or malformed, or a box leaves its image. Entries are named by index.
    """
    found: dict[str, list[RegionPhrase]] = {}
    left_out: Counter[str] = Counter()
    for path in paths:
        document = read_json(path)
        categories = _categories(document, path)
        sizes = _sizes(document, path)
        for index, thing in enumerate(member(document, "annotations", (list,), str(path))):
            where = f"{path}: annotations[{index}]"
            image = str(member(thing, "image_id", (int, str), where))
            category = member(thing, "category_id", (int,), where)
            if image not in sizes or category not in categories:
                raise DatasetError(
                    f"{where}: image_id {image} or category_id {category} is not in the file; "
                    "check that it is whole"
                )
            box = _box(member(thing, "bbox", (list,), where), sizes[image], where)
            if image not in images:
                left_out["of images without captions"] += 1
            elif thing.get("iscrowd"):
                left_out["of crowds"] += 1
            elif box is None:
                left_out["without an area"] += 1
            else:
                name, kind = categories[category]
                of_image = found.setdefault(image, [])
                of_image.append(
                    RegionPhrase(
                        id=f"{image}#p{len(of_image)}",
                        image=image,
                        phrase=name,
                        types=(kind,) if kind else (),
                        chain=str(member(thing, "id", (int, str), where)),
                        caption=None,
                        boxes=(box,),
                        size=sizes[image],
                    )
                )
    return tuple(phrase for of_image in found.values() for phrase in of_image), left_out


def _categories(document: Any, path: Path) -> dict[int, tuple[str, str]]:
    """Return name and supercategory of each category."""
    found = {}
    for index, category in enumerate(member(document, "categories", (list,), str(path))):
        where = f"{path}: categories[{index}]"
        number = member(category, "id", (int,), where)
        found[number] = member(category, "name", (str,), where), category.get("supercategory", "")
    return found


def _sizes(document: Any, path: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for index, image in enumerate(member(document, "images", (list,), str(path))):
        where = f"{path}: images[{index}]"
        width, height = (member(image, side, (int,), where) for side in ("width", "height"))
        found[str(member(image, "id", (int, str), where))] = width, height
    return found


def _box(values: list[Any], size: tuple[int, int], where: str) -> Box | None:
    """Return a box from x, y, width, height; None if it has no area."""
    if len(values) != 4 or not all(isinstance(value, int | float) for value in values):
        raise DatasetError(f"{where}: bbox {values} is not four numbers, x y width height")
    x, y, width, height = (float(value) for value in values)
    if width <= 0 or height <= 0:
        return None
    x1, y1 = round(x + width, 2), round(y + height, 2)
    if x1 > size[0] and x1 - size[0] <= _ROUNDING:
        x1 = float(size[0])
    if y1 > size[1] and y1 - size[1] <= _ROUNDING:
        y1 = float(size[1])
    if fault := check_box((x, y, x1, y1), size):
        raise DatasetError(f"{where}: bbox {values} {fault}; correct the file")
    return x, y, x1, y1
