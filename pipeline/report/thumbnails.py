"""Small copies of the pictures that a report shows, each made when it is first asked for."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from PIL import Image, ImageOps

from pipeline.clips.contact_sheet import shown_picture
from pipeline.files import appearing_whole
from pipeline.hashing import canonical_json
from pipeline.pages.rendering import jpeg_of
from pipeline.report.results import Dataset
from pipeline.report.waveform import waveform
from pipeline.sound.read_sound import read_sound

SIDE = 224
"""Of the square that a small copy fits into, in pixels."""

TINY = 76
"""Twice the pixels that a figure gives them, for dense screens."""

_QUALITY = 80
_NO_PICTURE = (128, 128, 128)
_RATE = 8000
"""Samples a second of a sound that is drawn."""


@dataclass(frozen=True)
class Thumbnail:
    """A small copy by its file's name, or "" and why there is none; and the line of its sound."""

    name: str
    fault: str = ""
    sound: str = ""


class Thumbnails:
    """The folder that small copies go to; each picture is copied when it is first asked for.

    Of a clip the copy is a sheet of its frames.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tiny: dict[tuple[str, str], bytes] = {}
        self._made: dict[tuple[str, str], Thumbnail] = {}
        self._sheets: list[str] = []

    def of(self, dataset: Dataset, image_id: str) -> Thumbnail:
        """Return the copy of a picture.

        Its name says nothing of the id, which may be any text. No metadata of the picture's file
        goes into it.

        Raises
        ------
        FileReadError
            The system failed; see `pipeline.images.decoding.decode`.
        """
        key = dataset.manifest.name, image_id
        if key not in self._made:
            decoded = shown_picture(dataset.files[image_id], dataset.manifest.media)
            name = f"{hashlib.sha256(canonical_json(key).encode()).hexdigest()[:20]}.jpg"
            if decoded.image is not None:
                decoded.image.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
                with appearing_whole(self._folder / name) as part:
                    part.write_bytes(jpeg_of(decoded.image, _QUALITY))
            sound = ""
            if dataset.manifest.media == "clips":
                samples = read_sound(dataset.files[image_id], _RATE).samples
                sound = "" if samples is None else waveform(samples, _RATE)
            self._made[key] = Thumbnail(name if decoded.image else "", decoded.reason, sound)
        return self._made[key]

    def tiny(self, dataset: Dataset, image_id: str) -> bytes:
        """Return the JPEG of a square of `TINY` pixels from a picture's middle; b"" without one.

        Raises
        ------
        FileReadError
        """
        key = dataset.manifest.name, image_id
        if key not in self._tiny:
            decoded = shown_picture(dataset.files[image_id], dataset.manifest.media, frames=1)
            if decoded.image is not None:
                square = ImageOps.fit(decoded.image, (TINY, TINY), Image.Resampling.BICUBIC)
                self._tiny[key] = jpeg_of(square, _QUALITY)
            else:
                self._made.setdefault(key, Thumbnail("", decoded.reason))
                self._tiny[key] = b""
        return self._tiny[key]

    def sheet(self, dataset: Dataset, image_ids: Sequence[str]) -> str:
        """Return the file of one picture with the squares of `tiny` of some images, row by row.

        Raises
        ------
        FileReadError
        """
        key = canonical_json((dataset.manifest.name, *image_ids))
        name = f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.jpg"
        if name not in self._sheets:
            columns, rows = grid(len(image_ids))
            sheet = Image.new("RGB", (columns * TINY, rows * TINY), _NO_PICTURE)
            for k, image_id in enumerate(image_ids):
                if jpeg := self.tiny(dataset, image_id):
                    place = (k % columns * TINY, k // columns * TINY)
                    sheet.paste(Image.open(io.BytesIO(jpeg)), place)
            with appearing_whole(self._folder / name) as part:
                part.write_bytes(jpeg_of(sheet, _QUALITY))
            self._sheets.append(name)
        return name

    @property
    def names(self) -> list[str]:
        """The files made, sorted."""
        return sorted([*self._sheets, *(made.name for made in self._made.values() if made.name)])

    @property
    def faults(self) -> list[str]:
        """A sentence about each picture that there is no copy of."""
        return sorted(
            f"{image_id} of {dataset} has no picture: {copy.fault}."
            for (dataset, image_id), copy in self._made.items()
            if copy.fault
        )


def grid(number: int) -> tuple[int, int]:
    """Return columns and rows of a sheet of pictures."""
    columns = ceil(number**0.5)
    return columns, ceil(number / columns)
