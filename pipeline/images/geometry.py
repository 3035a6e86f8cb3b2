"""Resize and crop: from an RGB image of any shape to the windows that a network sees."""

import numpy as np
from PIL import Image

from pipeline.recipes import Crop, Resize

Offset = tuple[int, int]


def canvas_size(width: int, height: int, resize: Resize) -> tuple[int, int]:
    """Return (width, height) of the canvas that an image of this size is resized to.

    "shorter-side" rounds the longer side down, as torchvision and order-embeddings do; a
    very long image still gets at least one pixel more than nothing.
    """
    size = resize.size
    if resize.rule == "squash":
        return size, size
    if width <= height:
        return size, max(1, size * height // width)
    return max(1, size * width // height), size


def resize_image(image: Image.Image, resize: Resize) -> np.ndarray:
    """Return the canvas, (height, width, 3) uint8, of an RGB image.

    Pillow's bilinear filter widens with the scale when shrinking, so it antialiases.
    """
    size = canvas_size(image.width, image.height, resize)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(image)


def centre_offset(margin: int, rule: str) -> int:
    """Return the first pixel of a centre window, `margin` pixels smaller than its canvas.

    "floor" gives 0,0,1,1,2,2 and "round" (half to even) 0,0,1,2,2,2 for margins 0 to 5.
    """
    return margin // 2 if rule == "floor" else round(margin / 2)


def crop_offsets(height: int, width: int, crop: Crop) -> list[Offset]:
    """Return (top, left) of each window of a canvas before mirroring: 1, or 5 for "ten"."""
    bottom, right = height - crop.size, width - crop.size
    if crop.rule == "none":
        return [(0, 0)]
    middle = centre_offset(bottom, crop.centre_offset), centre_offset(right, crop.centre_offset)
    if crop.rule == "centre":
        return [middle]
    return [(0, 0), (0, right), (bottom, 0), (bottom, right), middle]


def cut_crops(canvas: np.ndarray, crop: Crop) -> np.ndarray:
    """Cut a canvas into its windows.

    Parameters
    ----------
    canvas : (height, width, 3) uint8, at least `crop.size` on both sides.
    crop : the rule.

    Returns
    -------
    (crops, size, size, 3) uint8, 1 crop or 10. Ten: top left, top right, bottom left, bottom
    right, centre, then the mirror of each in the same order (Caffe's order; torchvision's
    TenCrop has the same windows with its last five in another order).
    """
    size = crop.size
    offsets = crop_offsets(canvas.shape[0], canvas.shape[1], crop)
    windows = np.stack([canvas[t : t + size, x : x + size] for t, x in offsets])
    if crop.rule == "ten":
        windows = np.concatenate([windows, windows[:, :, ::-1]])
    return windows
