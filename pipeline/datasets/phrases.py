"""Phrases with the boxes of what they name: lines of a dataset's `regions.jsonl`."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.store.inner_files import open_file

Box = tuple[float, float, float, float]
"""x0 y0 x1 y1 in original pixels, 0-based, right and bottom exclusive."""

# EXIF orientations that swap width and height.
_SIDEWAYS = (5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class RegionPhrase:
    """A phrase of one image, with the boxes of what it names."""

    id: str  # `<image id>#p<n>`, n from 0 in the image
    image: str  # image id
    phrase: str  # the words, as in the caption
    types: tuple[str, ...]  # kinds of thing, such as ("people",); may be empty
    chain: str | None  # identifier of the thing in its image, shared by all phrases about it
    caption: str | None  # id of the caption that contains the phrase
    boxes: tuple[Box, ...]  # one or more alternatives, each of which is correct
    size: tuple[int, int] | None = None  # (width, height) of the image in pixels, if known

    @property
    def plain(self) -> str:
        """The words in lower case with single blanks; equality defines a distinct phrase."""
        return " ".join(self.phrase.lower().split())

    @property
    def key(self) -> str:
        """Row id of the phrase's features: 16 hex digits of the SHA-256 of `plain`."""
        return hashlib.sha256(self.plain.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return the line's JSON values."""
        return {
            "id": self.id,
            "image": self.image,
            "phrase": self.phrase,
            "types": list(self.types),
            "chain": self.chain,
            "caption": self.caption,
            "boxes": [[_plain(value) for value in box] for box in self.boxes],
            "size": list(self.size) if self.size else None,
        }


def check_box(box: Sequence[float], size: tuple[int, int] | None) -> str | None:
    """Return the reason why `box` is not a box in an image of this size; None if it is."""
    x0, y0, x1, y1 = box
    if not (x0 < x1 and y0 < y1):
        return "has no area"
    if x0 < 0 or y0 < 0 or (size is not None and (x1 > size[0] or y1 > size[1])):
        of = f" of {size[0]} x {size[1]} pixels" if size else ""
        return f"is outside its image{of}"
    return None


def photo_size(path: Path) -> tuple[int, int]:
    """Return width and height in pixels of an image file as decoded, upright."""
    from PIL import ExifTags, Image

    try:
        with open_file(path) as stream, Image.open(stream) as image:
            turned = image.getexif().get(ExifTags.Base.Orientation) in _SIDEWAYS
            return (image.height, image.width) if turned else image.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DatasetError(
            f"the size of {path} cannot be read ({error}), so its boxes cannot be checked; fix the "
            "file, or remove its lines"
        ) from error


def hull(boxes: Sequence[Box]) -> Box:
    """Return the smallest box that contains all boxes."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def _plain(value: float) -> float:
    """Return whole numbers as int, so that JSON has 12 and not 12.0."""
    return int(value) if value == int(value) else value
