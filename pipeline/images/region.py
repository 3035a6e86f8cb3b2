"""Regions of photos as pictures of their own: cut out after decoding, each photo decoded once."""

import math
import threading
import zlib
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.images.decoding.decode import Decoded, Rule, read_image
from pipeline.progress import Stopwatch
from pipeline.shards.format import REFUSED

_PHOTOS_KEPT = 12


class PhotoCache:
    """The photos decoded last, for threads that cut regions from them in their order."""

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._photos: OrderedDict[Path, Future[Decoded]] = OrderedDict()

    def read(self, path: Path, rule: Rule, watch: Stopwatch | None) -> Decoded:
        """Return a photo; the first to ask decodes it, the others wait for that.

        Raises
        ------
        FileReadError
            The system, not the file, is at fault.
        """
        with self._lock:
            known = self._photos.get(path)
            photo: Future[Decoded] = known or Future()
            if known is None:
                self._photos[path] = photo
                if len(self._photos) > _PHOTOS_KEPT:
                    self._photos.popitem(last=False)
        if known is None:
            try:
                photo.set_result(read_image(path, rule, watch))
            except BaseException as error:
                photo.set_exception(error)
        return photo.result()


@dataclass(frozen=True)
class Region:
    """A part of a photo.

    Attributes
    ----------
    photo : its file.
    box : x0 y0 x1 y1 in the photo's pixels, upright, from 0, right and bottom exclusive.
    context : is added on every side, as a share of the box's width and height, as far as the photo
        reaches.
    photo_crc32 : CRC-32 of the file that the box was found on; 0: not known. Another photo is
        refused.
    photos : shared by the regions that are read together.
    """

    photo: Path
    box: tuple[float, float, float, float]
    context: float = 0.0
    photo_crc32: int = 0
    photos: PhotoCache = field(default_factory=PhotoCache, compare=False, repr=False)

    def source_crc32(self, photo_crc32: int) -> int:
        """Return the CRC-32 of what the region's row is made from: the photo's file, and the box.

        0 where there is no file.
        """
        return zlib.crc32(np.array(self.box, "<f8").tobytes(), photo_crc32) if photo_crc32 else 0

    def read(self, rule: Rule, watch: Stopwatch | None = None) -> Decoded:
        """Return the region as a picture of mode RGB, or why there is none.

        Raises
        ------
        FileReadError
            The system, not the file, is at fault.
        """
        whole = self.photos.read(self.photo, rule, watch)
        found = replace(whole, image=None, source_crc32=self.source_crc32(whole.source_crc32))
        if whole.image is None:
            return found
        if self.photo_crc32 not in (0, whole.source_crc32):
            reason = "the photo has changed since its boxes were proposed; propose again"
            return replace(found, status=REFUSED, reason=reason)
        x0, y0, x1, y1 = window = self.window(*whole.image.size)
        if x0 >= x1 or y0 >= y1:
            reason = f"box {list(self.box)} has no pixel of {whole.image.width} x "
            return replace(found, status=REFUSED, reason=f"{reason}{whole.image.height}")
        return replace(found, image=whole.image.crop(window))

    def window(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Return the whole pixels that are cut from a photo of this size.

        The box grows by its context, and outward to whole pixels; the photo's edges limit it.
        """
        x0, y0, x1, y1 = self.box
        across, down = self.context * (x1 - x0), self.context * (y1 - y0)
        return (
            max(0, math.floor(x0 - across)),
            max(0, math.floor(y0 - down)),
            min(width, math.ceil(x1 + across)),
            min(height, math.ceil(y1 + down)),
        )


Source = Path | Region
"""What a row of image features is made from."""

Picture = Source | Image.Image


def photo_of(source: Source) -> Path:
    """Return the file that a row needs."""
    return source.photo if isinstance(source, Region) else source
