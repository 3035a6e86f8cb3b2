"""Thumbnails of the images of a report, computed on first use."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from PIL import Image, ImageOps

from pipeline.images.shown_image import shown_image
from pipeline.store.files import appearing_whole
from pipeline.store.hashing import canonical_json
from pipeline.web.pages.rendering import jpeg_of
from pipeline.web.report.results import Dataset
from pipeline.web.report.waveform import waveform

SIDE = 224
"""Maximum width and height of a thumbnail in pixels."""

TINY = 76
"""Side of a square thumbnail in a figure in pixels: twice its CSS size, for dense screens."""

_QUALITY = 80
_UNREADABLE = (128, 128, 128)
_RATE = 8000
"""Sampling rate of a waveform in Hz."""


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail.

    Attributes
    ----------
    name : str. File name, or "".
    reason : str. Why there is no file, or "".
    sound : str. SVG of the waveform of a clip's sound, or "".
    """

    name: str
    reason: str = ""
    sound: str = ""


class Thumbnails:
    """Folder of thumbnails, each computed on first use.

    The thumbnail of a clip is a contact sheet of its frames.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tiny: dict[tuple[str, str], bytes] = {}
        self._made: dict[tuple[str, str], Thumbnail] = {}
        self._sheets: list[str] = []

    def of(self, dataset: Dataset, image_id: str) -> Thumbnail:
        """Return the thumbnail of an image.

        Its name is a hash, since an id may be any text. It has no metadata of the image file.

        Raises
        ------
        FileReadError
            The system failed; see `pipeline.images.decoding.decode`.
        """
        key = dataset.manifest.name, image_id
        if key not in self._made:
            decoded = shown_image(dataset.files[image_id], dataset.manifest.media)
            name = f"{hashlib.sha256(canonical_json(key).encode()).hexdigest()[:20]}.jpg"
            if decoded.image is not None:
                decoded.image.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
                with appearing_whole(self._folder / name) as part:
                    part.write_bytes(jpeg_of(decoded.image, _QUALITY))
            sound = ""
            if dataset.manifest.media == "clips":
                # Here: clips are an optional family.
                from pipeline.clips.sound.read_sound import read_sound

                samples = read_sound(dataset.files[image_id], _RATE).samples
                sound = "" if samples is None else waveform(samples, _RATE)
            self._made[key] = Thumbnail(name if decoded.image else "", decoded.reason, sound)
        return self._made[key]

    def tiny(self, dataset: Dataset, image_id: str) -> bytes:
        """Return the JPEG of the central square of an image, `TINY` pixels wide; b"" if unreadable.

        Raises
        ------
        FileReadError
        """
        key = dataset.manifest.name, image_id
        if key not in self._tiny:
            decoded = shown_image(dataset.files[image_id], dataset.manifest.media, frames=1)
            if decoded.image is not None:
                square = ImageOps.fit(decoded.image, (TINY, TINY), Image.Resampling.BICUBIC)
                self._tiny[key] = jpeg_of(square, _QUALITY)
            else:
                self._made.setdefault(key, Thumbnail("", decoded.reason))
                self._tiny[key] = b""
        return self._tiny[key]

    def sheet(self, dataset: Dataset, image_ids: Sequence[str]) -> str:
        """Return the name of a sprite sheet with the squares of `tiny`, row by row.

        Parameters
        ----------
        dataset : Dataset. Dataset of the images.
        image_ids : sequence of str. At least one image id.

        Raises
        ------
        FileReadError
        """
        key = canonical_json((dataset.manifest.name, *image_ids))
        name = f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.jpg"
        if name not in self._sheets:
            columns, rows = grid(len(image_ids))
            sheet = Image.new("RGB", (columns * TINY, rows * TINY), _UNREADABLE)
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
        """Sorted names of the written files."""
        return sorted([*self._sheets, *(made.name for made in self._made.values() if made.name)])

    @property
    def reasons(self) -> list[str]:
        """One sentence for each image without a thumbnail."""
        return sorted(
            f"{image_id} of {dataset} cannot be shown: {copy.reason}."
            for (dataset, image_id), copy in self._made.items()
            if copy.reason
        )


def grid(number: int) -> tuple[int, int]:
    """Return the numbers of columns and rows of a sprite sheet of at least one image."""
    columns = ceil(number**0.5)
    return columns, ceil(number / columns)
