"""Small copies of a dataset's pictures, made anew from their pixels, for a report's pages."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

from pipeline.files import appearing_whole
from pipeline.hashing import canonical_json
from pipeline.images.decode import read_image
from pipeline.pages.rendering import jpeg_of

SIDE = 224
"""Of the square that a small copy fits into, in pixels."""

TINY = 76
"""Twice the pixels that a figure gives them, for dense screens."""

_QUALITY = 80


@dataclass(frozen=True)
class Thumbnail:
    """A small copy by its file's name, or "" and why there is none."""

    name: str
    fault: str = ""


class Thumbnails:
    """The folder that small copies go to; each picture is copied when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tiny: dict[tuple[str, str], bytes] = {}
        self._made: dict[tuple[str, str], Thumbnail] = {}

    def of(self, dataset: str, image_id: str, file: Path) -> Thumbnail:
        """Return the copy of a picture.

        Its name says nothing of the id, which may be any text. No metadata of the picture's file
        goes into it.

        Raises
        ------
        ImageReadError
            The system failed; see `pipeline.images.decode`.
        """
        key = dataset, image_id
        if key not in self._made:
            decoded = read_image(file)
            name = f"{hashlib.sha256(canonical_json(key).encode()).hexdigest()[:20]}.jpg"
            if decoded.image is not None:
                decoded.image.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
                with appearing_whole(self._folder / name) as part:
                    part.write_bytes(jpeg_of(decoded.image, _QUALITY))
            self._made[key] = Thumbnail(name if decoded.image else "", decoded.reason)
        return self._made[key]

    def tiny(self, dataset: str, image_id: str, file: Path) -> bytes:
        """Return the JPEG of a square of `TINY` pixels from a picture's middle; b"" without one.

        Raises
        ------
        ImageReadError
        """
        key = dataset, image_id
        if key not in self._tiny:
            decoded = read_image(file)
            if decoded.image is not None:
                square = ImageOps.fit(decoded.image, (TINY, TINY), Image.Resampling.BICUBIC)
                self._tiny[key] = jpeg_of(square, _QUALITY)
            else:
                self._made.setdefault(key, Thumbnail("", decoded.reason))
                self._tiny[key] = b""
        return self._tiny[key]

    @property
    def names(self) -> list[str]:
        """The files made, sorted."""
        return sorted(one.name for one in self._made.values() if one.name)

    @property
    def faults(self) -> list[str]:
        """A sentence about each picture that there is no copy of."""
        return sorted(
            f"{image_id} of {dataset} has no picture: {one.fault}."
            for (dataset, image_id), one in self._made.items()
            if one.fault
        )
