"""Pictures in and out: uploads decoded under limits, the dataset's shown by id as small copies."""

import os
import threading
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from PIL import Image

from pipeline.datasets.manifest import Manifest
from pipeline.images.decode import (
    FORMATS,
    MissingImage,
    RefusedImage,
    UnreadableImage,
    decode,
    read_bytes,
)

MAX_PIXELS = 40_000_000
"""Of a picture that is decoded here: 120 MB at 8 bits, one picture at a time."""

SIDE = 320
"""Of the square that a small copy fits into, in pixels."""

_QUALITY, _KEPT = 82, 1024


def decode_bounded(data: bytes) -> Image.Image:
    """Decode an image file by the rule of `pipeline.images.decode`, if it is not large.

    Raises
    ------
    UnreadableImage, RefusedImage
        With the reason; more than `MAX_PIXELS` are refused by the file's header alone.
    """
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
    except Exception:  # as in `decode`, which knows the reason
        return decode(data)
    if width * height > MAX_PIXELS:
        raise RefusedImage(
            f"{width} x {height} pixels are more than the limit of {MAX_PIXELS} of this page"
        )
    return decode(data)


class Pictures:
    """Small copies of a dataset's pictures by id, made anew from their pixels."""

    def __init__(self, manifest: Manifest, ids: Iterable[str]) -> None:
        """Allow some images of a dataset, and no other file.

        Parameters
        ----------
        ids : of the manifest.
        """
        shown = set(ids)
        self._root = manifest.image_root
        self._files = {e.id: e.file for e in manifest.entries if e.id in shown}
        self._decoding = threading.Lock()
        self._copy = lru_cache(_KEPT)(self._made)

    def small_copy(self, image_id: str) -> bytes:
        """Return a picture as JPEG, at most `SIDE` wide and high, without metadata.

        Raises
        ------
        MissingImage
            There is no such id or file.
        UnusableImage
            The file leads out of the image root, or cannot be shown.
        """
        if image_id not in self._files:
            raise MissingImage("there is no picture of this id")
        with self._decoding:  # one at a time: memory is that of one picture
            return self._copy(image_id)

    def _made(self, image_id: str) -> bytes:
        small = decode_bounded(read_bytes(_below(self._root, self._files[image_id])))
        small.info = {}  # a comment in the source would be written to the copy
        small.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
        stream = BytesIO()
        small.save(stream, format="JPEG", quality=_QUALITY)
        return stream.getvalue()


def _below(root: Path, file: str) -> Path:
    """Return the path of a file without links, if it is below the root without them."""
    try:
        path = Path(os.path.realpath(root / file, strict=True))
    except OSError as error:
        raise MissingImage("no such file") from error
    if not path.is_relative_to(os.path.realpath(root)):
        raise UnreadableImage("a link that leaves the image root")
    return path
