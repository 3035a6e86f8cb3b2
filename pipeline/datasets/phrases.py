"""A phrase and the boxes of what it names: one line of a dataset's `regions.jsonl`."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.hashing import canonical_json

Box = tuple[float, float, float, float]
"""x0 y0 x1 y1 in pixels of the photo, from 0, right and bottom exclusive."""


@dataclass(frozen=True, slots=True)
class RegionPhrase:
    """A phrase of one image, with what it names in it.

    Attributes
    ----------
    id : `<image id>#p<n>`, n from 0 in the image.
    image : id of the image.
    phrase : the words, as they stand in the caption.
    types : kinds of thing, such as ("people",); may be empty.
    chain : name of the thing in its image, the same for all phrases about it; None: not known.
    caption : id of the caption that the phrase stands in; None: in none.
    boxes : one or more boxes of it, each of which is right by itself.
    size : (width, height) of the photo in pixels, where known.
    """

    id: str
    image: str
    phrase: str
    types: tuple[str, ...]
    chain: str | None
    caption: str | None
    boxes: tuple[Box, ...]
    size: tuple[int, int] | None = None

    @property
    def plain(self) -> str:
        """The words in lower case with single blanks; phrases that agree in it are the same."""
        return " ".join(self.phrase.lower().split())

    @property
    def key(self) -> str:
        """The row id of the phrase's features: 16 hex digits of the SHA-256 of `plain`."""
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


def regions_text(phrases: Sequence[RegionPhrase]) -> str:
    """Return the text of `regions.jsonl`, a line a phrase."""
    return "".join(canonical_json(phrase.to_json()) + "\n" for phrase in phrases)


def check_box(box: Sequence[float], size: tuple[int, int] | None) -> str | None:
    """Return the reason why `box` is no box of an image of this size; None if it is one."""
    x0, y0, x1, y1 = box
    if not (x0 < x1 and y0 < y1):
        return "has no area"
    if x0 < 0 or y0 < 0 or (size is not None and (x1 > size[0] or y1 > size[1])):
        of = f" of {size[0]} x {size[1]} pixels" if size else ""
        return f"lies outside its image{of}"
    return None


def hull(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around one or more boxes."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def _plain(value: float) -> float:
    """Return whole numbers as integers, so that the line says 12 and not 12.0."""
    return int(value) if value == int(value) else value
