"""Decoding of an image file to 8-bit RGB by a stated rule, or to a status with a reason.

The rule: the file is read once; Pillow decodes its first frame at full size; the EXIF orientation
is applied (unreadable metadata is ignored); 16-bit grey values are divided by 257; every other mode
goes through `convert("RGB")`, so that grey becomes three equal channels, CMYK is converted without
a colour profile and alpha is dropped. Truncated files are unreadable, never half an image, and so
are a TIFF in which libtiff finds an error and a PNG with a wrong pixel checksum. Bytes are limited
before reading, pixels before decoding.

An error of the file becomes the row's status. An error of the machine (permission, I/O, too many
open files, no memory) ends the run, which can be resumed.
"""

import errno
import importlib
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import AvifImagePlugin, ExifTags, Image, UnidentifiedImageError

from pipeline.images.decoding.jpeg import sound_jpeg
from pipeline.images.decoding.libtiff import libtiff_errors
from pipeline.images.recipes import PILLOW_RGB, RecipeError
from pipeline.store.errors import FileReadError
from pipeline.store.extras import install_command
from pipeline.store.hashing import crc32
from pipeline.store.inner_files import UnusablePart, bytes_of, outer_file, stated_size
from pipeline.store.objects.urls import shown, url_of
from pipeline.store.own_files import NOT_DOWNLOADED, is_pointer
from pipeline.store.progress import DECODE, READ, Stopwatch
from pipeline.store.shards.format import MISSING, OK, REFUSED, UNREADABLE

# Pillow's own limit against decompression bombs, about 89 million pixels.
MAX_PIXELS = 89_478_485
# More than so many uncompressed pixels of 16-bit RGB need.
MAX_BYTES = 2**30

# Formats that Pillow decodes itself, without starting another program. (JPEG includes the
# multi-image MPO files of phones.)
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "AVIF")

# Load the decoders now, so that reader threads do not race.
Image.init()
# One thread per image, since images are decoded on all cores at once.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1

_SIXTEEN_BIT = ("I", "I;16", "I;16L", "I;16B", "I;16N")
_EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")

# Impossible file names and dangling links count as missing files.
_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)

# HEIC files, as phones write them, need the extra `heif`.
_HEIF_EXTRA = f"a HEIC image, which the extra `heif` decodes: {install_command('heif')}"
# Major brands of ISO/IEC 23008-12. `mif1` and `msf1` may also be AVIF, which Pillow tries first.
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_TURN_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


Pixels = Image.Image | npt.NDArray[np.uint8]
"""8-bit RGB pixels as they were decoded: by Pillow, or an array (height, width, 3)."""

Rule = Callable[[Image.Image], Image.Image]
"""Function from a Pillow image of any mode to an upright 8-bit RGB image."""


class UnusableImage(Exception):
    """Reason why a file yields no image, without its path."""

    def __init__(self, reason: str, status: int = UNREADABLE) -> None:
        super().__init__(reason)
        # Of the row. UNREADABLE: not a complete image of a supported format; MISSING: no such file;
        # REFUSED: too large, or of a mode without a stated 8-bit range.
        self.status = status


@dataclass(frozen=True)
class Decoded:
    """The pixels of an image file, or the reason for their absence."""

    pixels: Pixels | None  # at least 1 x 1; None if `status` is not 0
    source_crc32: int = 0  # of the file's bytes; 0 if none were read
    status: int = OK
    reason: str = ""  # one line without the path

    @cached_property
    def image(self) -> Image.Image | None:
        """The pixels as a Pillow image of mode RGB."""
        return None if self.pixels is None else as_image(self.pixels)


def as_image(pixels: Pixels) -> Image.Image:
    """Return pixels as a Pillow image of mode RGB."""
    return pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)


def size_of(pixels: Pixels) -> tuple[int, int]:
    """Return the width and height of pixels."""
    if isinstance(pixels, Image.Image):
        return pixels.size
    height, width, _ = pixels.shape
    return width, height


def cropped(pixels: Pixels, box: tuple[int, int, int, int]) -> Pixels:
    """Return the pixels of a box (left, top, right, bottom) within them."""
    if isinstance(pixels, Image.Image):
        return pixels.crop(box)
    left, top, right, bottom = box
    return pixels[top:bottom, left:right]


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an upright 8-bit RGB copy of an opened image; refuse modes without an 8-bit range."""
    if (turn := _turn_of(image)) is not None:
        image = image.transpose(turn)
    if image.mode in _SIXTEEN_BIT:
        values = np.asarray(image).astype(np.int32)
        if values.min() < 0 or values.max() > 65535:
            raise UnusableImage(
                "32-bit grey values outside 0-65535 have no stated 8-bit range", REFUSED
            )
        values += 128  # in place: for the largest image these are 358 MB
        values //= 257
        return Image.fromarray(values.astype(np.uint8)).convert("RGB")
    if image.mode not in _EIGHT_BIT:
        raise UnusableImage(
            f"values of Pillow's mode {image.mode} have no stated 8-bit range", REFUSED
        )
    if "transparency" in image.info:
        # Alpha is dropped: Pillow's conversion of a transparent colour can fail.
        image = image.copy()
        del image.info["transparency"]
    rgb = image.convert("RGB")
    # Remove the metadata, so that the orientation is not applied again.
    rgb.info = {}
    return rgb


def _turn_of(image: Image.Image) -> Image.Transpose | None:
    """Return what turns an image upright; a missing or unreadable EXIF orientation is ignored."""
    # Pillow's `exif_transpose` also rewrites the metadata, and fails if they are damaged.
    try:
        return _TURN_UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except MemoryError:
        raise
    except Exception:
        return None


RULES: dict[str, Rule] = {PILLOW_RGB: to_rgb}
"""Decoding functions by the text of a recipe's `decode`."""


def decoding_rule(recipe_decode: str) -> Rule:
    """Return the decoding function of a recipe's `decode`."""
    if recipe_decode not in RULES:
        raise RecipeError(
            f"no decoding rule is called {recipe_decode!r}; known: {'; '.join(RULES)}"
        )
    return RULES[recipe_decode]


def read_image(path: Path | bytes, rule: Rule = to_rgb, watch: Stopwatch | None = None) -> Decoded:
    """Read an image file once, unless its bytes are given, and decode it.

    A system error ends the run, as `FileReadError`.
    """
    watch = watch or Stopwatch()
    checksum = 0
    try:
        with watch.timing(READ):
            data = path if isinstance(path, bytes) else read_bytes(path)
        with watch.timing(DECODE):
            checksum = crc32(data)
            return Decoded(decoded_pixels(data, rule=rule), checksum)
    except UnusableImage as error:
        return Decoded(None, checksum, error.status, str(error))
    # Pixels are limited before decoding, so exhausted memory is never attributed to the file.
    except (OSError, MemoryError) as error:
        raise fault_of_the_system(path, error) from error


def rgb_of_picture(picture: Image.Image, rule: Rule) -> Decoded:
    """Decode an image that Pillow has opened, without a CRC-32; the image is not modified."""
    try:
        with _reasons(MAX_PIXELS):
            _require_size(picture, MAX_PIXELS)
            return Decoded(rule(picture))
    except UnusableImage as error:
        return Decoded(None, 0, error.status, str(error))


def source_crc32(path: Path) -> int:
    """Return the CRC-32 of a file's bytes; 0 if the file is missing or not readable as a file."""
    try:
        return crc32(read_bytes(path))
    except UnusableImage:
        return 0
    except (OSError, MemoryError) as error:
        raise fault_of_the_system(path, error) from error


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file of at most `MAX_BYTES`, or raise an `UnusableImage`."""
    try:
        outer = outer_file(path)
        size = stated_size(path)
        if url_of(outer) is None:
            inside = outer != os.fspath(path)
            info = Path(outer).stat() if inside else path.stat()
            if stat.S_ISDIR(info.st_mode):
                raise UnusableImage("a folder, not a file")
            # Reading a pipe would block, a device might never end.
            if not stat.S_ISREG(info.st_mode):
                raise UnusableImage("not an ordinary file")
            size = size if inside else info.st_size
        if size > MAX_BYTES:
            raise UnusableImage(f"{size} bytes are more than the limit of {MAX_BYTES}", REFUSED)
        data = bytes_of(path, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UnusableImage(f"more bytes than the limit of {MAX_BYTES}", REFUSED)
        return data
    except UnusablePart as error:
        raise UnusableImage(str(error)) from error
    except OSError as error:
        if error.errno in _NO_SUCH_FILE:
            raise UnusableImage("no such file", MISSING) from None
        raise
    except ValueError:  # a NUL or a lone surrogate, which file names cannot contain
        raise UnusableImage("no such file", MISSING) from None


def decode(data: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode a file's bytes to mode RGB; `max_pixels` limits the size stated in its header."""
    return as_image(decoded_pixels(data, max_pixels))


def decoded_pixels(data: bytes, max_pixels: int = MAX_PIXELS, rule: Rule = to_rgb) -> Pixels:
    """As `decode`, by a rule, and as the decoder returns them."""
    formats = (*FORMATS, "HEIF") if _is_heif(data) and register_heif() else FORMATS
    with _reasons(max_pixels, data), Image.open(BytesIO(data), formats=formats) as image:
        _require_size(image, max_pixels)
        if rule is to_rgb and (pixels := sound_jpeg(data, image)) is not None:
            turn = _turn_of(image)
            return pixels if turn is None else Image.fromarray(pixels).transpose(turn)
        image.load()
        if image.format == "PNG" and _pixels_are_damaged(data):
            raise UnusableImage("damaged: its pixels have another checksum than the PNG states")
        return rule(image)


def _is_heif(data: bytes) -> bool:
    """Return whether a file starts like a HEIC image."""
    return data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS


@cache
def register_heif() -> bool:
    """Register HEIC with Pillow, and return whether the extra is installed."""
    try:
        library = importlib.import_module("pillow_heif")
    except ImportError:
        return False
    # One thread per image, since images are decoded on all cores at once.
    library.register_heif_opener(decode_threads=1, thumbnails=False)
    return True


def _pixels_are_damaged(data: bytes) -> bool:
    """Return whether a pixel chunk (`IDAT`) of a PNG file has a wrong checksum."""
    # Pillow does not verify it. PNG (third edition, section 5.3): a chunk is its length, its type,
    # its data, and the CRC-32 of type and data.
    view, start = memoryview(data), len(_PNG_SIGNATURE)
    while data.startswith(_PNG_SIGNATURE) and start + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", view, start)
        end = start + 8 + length
        if kind == b"IDAT" and crc32(view[start + 4 : end]).to_bytes(4) != view[end : end + 4]:
            return True
        start = end + 4
    return False


def _require_size(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise UnusableImage(
            f"{width} x {height} pixels are more than the limit of {max_pixels}", REFUSED
        )
    if width * height == 0:
        raise UnusableImage(f"{width} x {height} pixels")


@contextmanager
def _reasons(max_pixels: int, data: bytes = b"") -> Iterator[None]:
    """Convert any exception of Pillow over an image into the reason for its rejection."""
    try:
        with libtiff_errors():
            yield
    except (UnusableImage, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnusableImage(
            f"more pixels than the limit of {max_pixels} ({error})", REFUSED
        ) from error
    except UnidentifiedImageError:
        if _is_heif(data) and not register_heif():
            raise UnusableImage(_HEIF_EXTRA) from None
        if is_pointer(data):
            raise UnusableImage(NOT_DOWNLOADED) from None
        raise UnusableImage(f"not an image of a known format ({', '.join(FORMATS)})") from None
    # Pillow's decoders raise whatever their parsers fail with; one bad file must not end a run,
    # so every exception becomes a reason, except those with an errno.
    except Exception as error:
        if isinstance(error, OSError):
            if error.errno is not None:
                raise
            raise UnusableImage(str(error)) from error
        raise UnusableImage(f"{type(error).__name__}: {error}") from error


def fault_of_the_system(
    path: Path | bytes, error: OSError | MemoryError, what: str = "image"
) -> FileReadError:
    """Return the error for a file (an image or a clip) that the system fails to read."""
    reason = (isinstance(error, OSError) and error.strerror) or "out of memory"
    where = "an image" if isinstance(path, bytes) else shown(path)
    return FileReadError(
        f"{where} could not be read ({reason}), a system error, not one of the {what}, so its row "
        "was not written; fix that, or delete the file to have its row marked as missing, and run "
        "the same command again: it resumes where it stopped"
    )
