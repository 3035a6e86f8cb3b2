"""Regions as images: cut from the decoded image, which is decoded once for all its regions."""

import math
import threading
import zlib
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.images.decoding.decode import Decoded, Rule, cropped, read_image, size_of
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import REFUSED

_PHOTOS_KEPT = 12


class PhotoCache:
    """Cache of the last decoded images, shared by threads that cut regions in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._photos: OrderedDict[Path, Future[Decoded]] = OrderedDict()

    def __reduce__(self) -> tuple[type["PhotoCache"], tuple[()]]:
        return PhotoCache, ()  # a copy for a worker is empty

    def read(self, path: Path, rule: Rule, watch: Stopwatch | None) -> Decoded:
        """Return a decoded image; one thread decodes it, the others wait."""
        # The lock covers the lookup only: the future is shared before the image is decoded, so that
        # threads with regions of one image wait for it, and others decode theirs meanwhile.
        with self._lock:
            cached = self._photos.get(path)
            photo: Future[Decoded] = cached or Future()
            if cached is None:
                self._photos[path] = photo
                if len(self._photos) > _PHOTOS_KEPT:
                    self._photos.popitem(last=False)
        if cached is None:
            try:
                photo.set_result(read_image(path, rule, watch))
            except BaseException as error:
                photo.set_exception(error)
        return photo.result()


@dataclass(frozen=True)
class Region:
    """A region of an image, which is read as an image of its own."""

    photo: Path
    box: tuple[float, float, float, float]
    """x0 y0 x1 y1 in pixels of the upright image, from 0, right and bottom exclusive."""
    context: float = 0.0
    """Margin on every side, as a share of the box's width and height."""
    photo_crc32: int = 0
    """CRC-32 of the file on which the box was found; 0: unknown. Another file is refused."""
    # Shared by the regions that are read together.
    photos: PhotoCache = field(default_factory=PhotoCache, compare=False, repr=False)

    def source_crc32(self, photo_crc32: int) -> int:
        """Return the CRC-32 of the image file and the box; 0 if the file is missing."""
        return zlib.crc32(np.array(self.box, "<f8").tobytes(), photo_crc32) if photo_crc32 else 0

    def read(self, rule: Rule, watch: Stopwatch | None = None) -> Decoded:
        """Return the region as an RGB image, or the reason for its absence."""
        whole = self.photos.read(self.photo, rule, watch)
        decoded = replace(whole, pixels=None, source_crc32=self.source_crc32(whole.source_crc32))
        if whole.pixels is None:
            return decoded
        if self.photo_crc32 not in (0, whole.source_crc32):
            reason = "the photo has changed since its boxes were proposed; propose again"
            return replace(decoded, status=REFUSED, reason=reason)
        width, height = size_of(whole.pixels)
        x0, y0, x1, y1 = window = self.window(width, height)
        if x0 >= x1 or y0 >= y1:
            reason = f"box {list(self.box)} has no pixel of {width} x {height}"
            return replace(decoded, status=REFUSED, reason=reason)
        return replace(decoded, pixels=cropped(whole.pixels, window))

    def window(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Return (left, top, right, bottom) in whole pixels for an image of this size.

        The box is enlarged by its context, rounded outward, and clipped to the image.
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
"""What a row of image features is computed from."""

Picture = Source | Image.Image


def photo_of(source: Source) -> Path:
    """Return the image file of a row."""
    return source.photo if isinstance(source, Region) else source
