"""Image preprocessing: decode, resize and crop an image to the windows of the network.

`read_sample` does all of it; `windows_of` applies a recipe's `resize` and `crop` to decoded pixels.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.images.decoding.decode import (
    MAX_PIXELS,
    Pixels,
    UnusableImage,
    as_image,
    decoding_rule,
    read_image,
    rgb_of_picture,
    size_of,
)
from pipeline.images.decoding.resampling import FILTERS, Box, exact_resize
from pipeline.images.recipes import Crop, Recipe, Resize
from pipeline.images.region import Picture, Region
from pipeline.store.progress import DECODE, Stopwatch
from pipeline.store.shards.format import OK, REFUSED

Offset = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """Input of the network for one image, or the reason for its absence."""

    windows: np.ndarray | None  # (windows, h, w, 3) uint8; None if `status` is not 0
    source_crc32: int  # of the file's bytes and of a region's box; 0 if no file was read
    status: int = OK
    error: str = ""  # reason, as in the shards


def canvas_size(width: int, height: int, resize: Resize) -> tuple[int, int]:
    """Return (width, height) of the canvas of an image of this size.

    "shorter-side" rounds the longer side down, as torchvision and order-embeddings do.
    """
    size = resize.size
    if resize.rule == "squash":
        return size, size
    shorter = min(width, height)
    canvas = size * width // shorter, size * height // shorter
    if canvas[0] * canvas[1] > MAX_PIXELS:
        raise UnusableImage(
            f"{width} x {height} pixels with the shorter side at {size} would be "
            f"{canvas[0]} x {canvas[1]}, more than the limit of {MAX_PIXELS}",
            REFUSED,
        )
    return canvas


def windows_of(pixels: Pixels, resize: Resize, crop: Crop) -> np.ndarray:
    """Return the windows (crops, size, size, 3) uint8 of RGB pixels."""
    if crop.rule != "centre":
        return cut_crops(resize_image(pixels, resize), crop)
    width, height = canvas_size(*size_of(pixels), resize)
    ((top, left),) = crop_offsets(height, width, crop)
    window = resize_image(pixels, resize, (left, top, left + crop.size, top + crop.size))
    return np.require(window, requirements="W")[None]  # Pillow's is not, which torch warns of


def resize_image(pixels: Pixels, resize: Resize, window: Box | None = None) -> np.ndarray:
    """Return RGB pixels resized to their canvas, or a window of it, (height, width, 3) uint8.

    A window is (left, top, right, bottom).

    Deviation: skimage, Caffe and MATLAB in floating point do not round to 8 bits; the difference
    is at most half a grey level, and bicubic values beyond 0-255 are clipped.
    """
    size = canvas_size(*size_of(pixels), resize)
    left, top, right, bottom = window or (0, 0, *size)
    # Pillow's filters widen with the scale when shrinking, so they antialias; its bicubic is
    # MATLAB's (a = -0.5).
    if resize.antialias and size != size_of(pixels):
        name = resize.interpolation
        if (exactly := exact_resize()) is not None:
            return exactly(np.asarray(pixels), size, (left, top, right, bottom), name)
        canvas = np.asarray(as_image(pixels).resize(size, FILTERS[name]))
    elif size == size_of(pixels):
        canvas = np.asarray(pixels)
    else:
        canvas = np.rint(bilinear(np.asarray(pixels), *size)).astype(np.uint8)
    return canvas[top:bottom, left:right]


def bilinear(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """Resize (rows, columns, channels) uint8 bilinearly: (height, width, channels) float64.

    The four nearest pixels are mixed without antialiasing and rounding: skimage's `resize` of
    order 1 before it antialiased, and so `caffe.io.resize_image`. Deviation: beyond the outermost
    centres, when enlarging, the edge is repeated (skimage's default was black).
    """
    above, below, down = _neighbours(pixels.shape[0], height)
    left, right, across = _neighbours(pixels.shape[1], width)
    down, across = down[:, None, None], across[None, :, None]
    upper, lower = pixels[above], pixels[below]
    top = upper[:, left] * (1 - across) + upper[:, right] * across
    bottom = lower[:, left] * (1 - across) + lower[:, right] * across
    return top * (1 - down) + bottom * down


def _neighbours(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the two old pixels around each new centre, and the weight of the second."""
    # Pixel i has its centre at i + 1/2.
    centres = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
    first = centres.astype(np.intp)
    return first, np.minimum(first + 1, old - 1), centres - first


def centre_offset(margin: int, rule: str) -> int:
    """Return the offset of a centre crop in a canvas that is `margin` pixels larger.

    For margins 0 to 5, "floor" returns 0, 0, 1, 1, 2, 2 (Caffe), "ceil" 0, 1, 1, 2, 2, 3 (Klein's
    MATLAB code) and "round", half to even, 0, 0, 1, 2, 2, 2 (torchvision).
    """
    if rule == "floor":
        return margin // 2
    return (margin + 1) // 2 if rule == "ceil" else round(margin / 2)


def crop_offsets(height: int, width: int, crop: Crop) -> list[Offset]:
    """Return (top, left) of each window before mirroring: 1, or 5 for "ten"."""
    bottom, right = height - crop.size, width - crop.size
    if crop.rule in ("none", "flip"):
        return [(0, 0)]
    middle = centre_offset(bottom, crop.centre_offset), centre_offset(right, crop.centre_offset)
    if crop.rule == "centre":
        return [middle]
    return [(0, 0), (0, right), (bottom, 0), (bottom, right), middle]


def cut_crops(canvas: np.ndarray, crop: Crop) -> np.ndarray:
    """Cut a canvas (height, width, 3) uint8 into windows (crops, size, size, 3).

    Ten: top left, top right, bottom left, bottom right, centre, then the mirror of each in the same
    order (Caffe's order; torchvision's TenCrop orders the last five differently).
    """
    size = crop.size
    offsets = crop_offsets(canvas.shape[0], canvas.shape[1], crop)
    windows = np.stack([canvas[t : t + size, x : x + size] for t, x in offsets])
    if len(windows) < crop.windows:
        windows = np.concatenate([windows, windows[:, :, ::-1]])
    return windows


def read_sample(
    picture: Picture, recipe: Recipe, window: Crop, watch: Stopwatch | None = None
) -> Sample:
    """Read, decode, resize and crop one image by the rules of a recipe, but cut by `window`."""
    return read_windows(picture, recipe.decode, recipe.resize, window, watch or Stopwatch())


def read_windows(
    picture: Picture | bytes, decode: str, resize: Resize, window: Crop, watch: Stopwatch
) -> Sample:
    """As `read_sample`, with rules in place of the recipe, also of the bytes of a file."""
    rule = decoding_rule(decode)
    if isinstance(picture, Path | bytes):
        decoded = read_image(picture, rule, watch)
    elif isinstance(picture, Region):
        decoded = picture.read(rule, watch)
    else:
        decoded = rgb_of_picture(picture, rule)
    if decoded.pixels is None:
        return Sample(None, decoded.source_crc32, decoded.status, decoded.reason)
    try:
        with watch.timing(DECODE):
            windows = windows_of(decoded.pixels, resize, window)
    except UnusableImage as error:
        return Sample(None, decoded.source_crc32, error.status, str(error))
    return Sample(windows, decoded.source_crc32)
