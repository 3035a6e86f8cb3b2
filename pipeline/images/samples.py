"""An image file becomes what a network sees of it: windows of 8-bit pixels, or a reason."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.images.decode import UnusableImage, read_image
from pipeline.images.geometry import cut_crops, resize_image
from pipeline.recipes import Crop, Resize
from pipeline.shards.format import OK


@dataclass(frozen=True)
class Sample:
    """One image as the network sees it, or the reason why it cannot.

    Attributes
    ----------
    windows : (windows, h, w, 3) uint8, or None if `status` is not 0.
    source_crc32 : CRC-32 of the file's bytes; 0 where none were read.
    status, error : as they stand in the shards.
    """

    windows: np.ndarray | None
    source_crc32: int
    status: int = OK
    error: str = ""


def read_sample(path: Path, resize: Resize, window: Crop) -> Sample:
    """Read, decode, resize and cut one file.

    Raises
    ------
    ImageReadError
        The system, not the file, is at fault.
    """
    decoded = read_image(path)
    if decoded.image is None:
        return Sample(None, decoded.source_crc32, decoded.status, decoded.reason)
    try:
        canvas = resize_image(decoded.image, resize)
    except UnusableImage as fault:
        return Sample(None, decoded.source_crc32, fault.status, str(fault))
    return Sample(cut_crops(canvas, window), decoded.source_crc32)
