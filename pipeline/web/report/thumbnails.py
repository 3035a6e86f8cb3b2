"""Thumbnails of the images of a report, computed on first use."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from PIL import Image, ImageOps

from pipeline.images.shown_image import shown_image
from pipeline.store.files import appearing_whole
from pipeline.store.hashing import canonical_json
from pipeline.web.pages.rendering import jpeg_of
from pipeline.web.report.results import Dataset

SIDE = 224  # maximum width and height of a thumbnail in pixels
TINY = 76  # side of a square thumbnail in a figure in pixels: twice its CSS size, for dense screens
_QUALITY = 80
_UNREADABLE = (128, 128, 128)
_HEIGHT = 24  # of a waveform, which is as wide as the thumbnail above it
_RATE = 8000  # sampling rate of a waveform in Hz


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail."""

    name: str  # file name, or ""
    reason: str = ""  # why there is no file, or ""
    sound: str = ""  # SVG of the waveform of a clip's sound, or ""


class Thumbnails:
    """Folder of thumbnails, of clips as contact sheets, each computed on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tiny: dict[tuple[str, str], bytes] = {}
        self._thumbnails: dict[tuple[str, str], Thumbnail] = {}
        self._sheets: list[str] = []

    def of(self, dataset: Dataset, image_id: str) -> Thumbnail:
        """Return the thumbnail of an image, without the metadata of its file."""
        key = dataset.manifest.name, image_id
        if key not in self._thumbnails:
            decoded = shown_image(dataset.files[image_id], dataset.manifest.media)
            name = _file_name(key)
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
            self._thumbnails[key] = Thumbnail(name if decoded.image else "", decoded.reason, sound)
        return self._thumbnails[key]

    def tiny(self, dataset: Dataset, image_id: str) -> bytes:
        """Return the JPEG of the central square of an image, `TINY` pixels wide, or b""."""
        key = dataset.manifest.name, image_id
        if key not in self._tiny:
            decoded = shown_image(dataset.files[image_id], dataset.manifest.media, frames=1)
            if decoded.image is not None:
                square = ImageOps.fit(decoded.image, (TINY, TINY), Image.Resampling.BICUBIC)
                self._tiny[key] = jpeg_of(square, _QUALITY)
            else:
                self._thumbnails.setdefault(key, Thumbnail("", decoded.reason))
                self._tiny[key] = b""
        return self._tiny[key]

    def sheet(self, dataset: Dataset, image_ids: Sequence[str]) -> str:
        """Return the name of a sprite sheet with the squares of `tiny`, row by row."""
        name = _file_name((dataset.manifest.name, *image_ids))
        if name not in self._sheets:
            columns, rows = grid(len(image_ids))
            sheet = Image.new("RGB", (columns * TINY, rows * TINY), _UNREADABLE)
            for k, image_id in enumerate(image_ids):
                if jpeg := self.tiny(dataset, image_id):
                    corner = (k % columns * TINY, k // columns * TINY)
                    sheet.paste(Image.open(io.BytesIO(jpeg)), corner)
            with appearing_whole(self._folder / name) as part:
                part.write_bytes(jpeg_of(sheet, _QUALITY))
            self._sheets.append(name)
        return name

    @property
    def names(self) -> list[str]:
        """Sorted names of the written files."""
        copies = (thumbnail.name for thumbnail in self._thumbnails.values() if thumbnail.name)
        return sorted([*self._sheets, *copies])

    @property
    def reasons(self) -> list[str]:
        """One sentence for each image without a thumbnail."""
        return sorted(
            f"{image_id} of {dataset} cannot be shown: {copy.reason}."
            for (dataset, image_id), copy in self._thumbnails.items()
            if copy.reason
        )


def _file_name(ids: Sequence[str]) -> str:
    """Return a hash as the name of a file, since an id may be any text."""
    return f"{hashlib.sha256(canonical_json(ids).encode()).hexdigest()[:20]}.jpg"


def grid(number: int) -> tuple[int, int]:
    """Return the numbers of columns and rows of a sprite sheet of at least one image."""
    columns = ceil(number**0.5)
    return columns, ceil(number / columns)


def waveform(samples: npt.NDArray[np.float32], rate: int) -> Markup:
    """Return the SVG of mono samples (n,): their minimum and maximum in each of `SIDE` columns."""
    if not len(samples):
        return Markup()
    edges = np.linspace(0, len(samples), min(SIDE, len(samples)) + 1).astype(int)
    low = np.minimum.reduceat(samples, edges[:-1])
    high = np.maximum.reduceat(samples, edges[:-1])
    middle, loudest = _HEIGHT / 2, max(float(np.abs(samples).max()), 1e-9)
    step = SIDE / len(low)
    there = [(k + 0.5, middle - middle * v / loudest) for k, v in enumerate(high.tolist())]
    back = [(k + 0.5, middle - middle * v / loudest) for k, v in enumerate(low.tolist())]
    points = " ".join(f"{x * step:.1f},{y:.1f}" for x, y in [*there, *reversed(back)])
    return Markup(
        f'<svg class="waveform" viewBox="0 0 {SIDE} {_HEIGHT}" width="{SIDE}" height="{_HEIGHT}" '
        f'role="img" aria-label="its sound, {len(samples) / rate:.1f} s">'
        f'<polygon points="{points}" fill="currentColor" stroke="currentColor" '
        'stroke-width="0.5"/></svg>'
    )
