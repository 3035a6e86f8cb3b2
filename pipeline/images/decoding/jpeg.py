"""JPEG decoding by libjpeg-turbo without Pillow's buffers, where the pixels are Pillow's."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

_FORMATS = ("JPEG", "MPO")
_MODES = ("RGB", "L")


def sound_jpeg(data: bytes, image: Image.Image) -> npt.NDArray[np.uint8] | None:
    """Return the pixels (height, width, 3) of a JPEG file that Pillow has opened, or None.

    None: of another format or colour space, not sound in every byte (Pillow then decides, and
    names what is wrong), or simplejpeg (extra `fast`) cannot be used.
    """
    library = _simplejpeg()
    if library is None or image.format not in _FORMATS or image.mode not in _MODES:
        return None
    try:
        pixels: npt.NDArray[np.uint8] = library.decode_jpeg(data, strict=True)
    except ValueError:
        return None
    return pixels if pixels.shape == (image.height, image.width, 3) else None


@cache
def _simplejpeg() -> Any:
    try:
        import simplejpeg
    except Exception:  # not installed, or for another numpy: the file may be sound
        return None
    return simplejpeg
