"""An image file becomes 8-bit RGB by one stated rule, or is refused with a reason.

The rule: the first frame is decoded with Pillow; the EXIF orientation is applied; 16-bit grey
values are divided by 257; every other mode goes through `convert("RGB")`, so that grey becomes
three equal channels, CMYK is converted without a colour profile and alpha is dropped. A file
that ends early is unreadable, never half an image. The pixel limit is checked before decoding.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Pillow's own limit, about 89 million pixels: a decompression bomb costs memory, not a crash.
MAX_PIXELS = 89_478_485

# Formats whose decoders are part of Pillow itself: none that starts another program. (JPEG
# includes the multi-picture files of phones.)
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")

# Loads the decoders now, so that reading threads do not race to.
Image.init()

_SIXTEEN_BIT = ("I", "I;16", "I;16L", "I;16B", "I;16N")


class UnreadableImage(Exception):
    """The file is there, but is no whole image of a known format."""


class MissingImage(Exception):
    """There is no such file."""


class RefusedImage(Exception):
    """The image could be read but must not or cannot be used: too large, or no 8-bit meaning."""


def decode_rgb(path: Path) -> Image.Image:
    """Decode an image file to mode RGB, (height, width, 3) 0-255.

    Raises
    ------
    MissingImage, UnreadableImage, RefusedImage
        With a reason that does not repeat the path.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise RefusedImage(
                    f"{width} x {height} pixels are more than the limit of {MAX_PIXELS}"
                )
            image.load()
            return to_rgb(image)
    except FileNotFoundError:
        raise MissingImage("no such file") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RefusedImage(f"more pixels than the limit of {MAX_PIXELS} ({error})") from error
    except UnidentifiedImageError:
        raise UnreadableImage(f"not an image of a known format ({', '.join(FORMATS)})") from None
    except RefusedImage:
        raise
    except OSError as error:
        raise UnreadableImage(error.strerror or str(error)) from error
    # Pillow's decoders raise whatever their parsers stumble over; one bad file must not end a
    # run, so every exception of this one file becomes its reason.
    except Exception as error:
        raise UnreadableImage(f"{type(error).__name__}: {error}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Turn a loaded image of any mode upright and into 8-bit RGB.

    Raises
    ------
    RefusedImage
        Floating-point or 32-bit values outside 0-65535, which no 8-bit range is stated for.
    """
    upright = ImageOps.exif_transpose(image)
    if upright.mode in _SIXTEEN_BIT:
        values = np.asarray(upright).astype(np.int64)
        if values.size and (values.min() < 0 or values.max() > 65535):
            raise RefusedImage("32-bit grey values outside 0-65535 have no stated 8-bit range")
        return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
    if upright.mode == "F":
        raise RefusedImage("floating-point grey values have no stated 8-bit range")
    return upright.convert("RGB")
