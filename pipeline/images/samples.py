"""An image file becomes what a network sees of it: windows of 8-bit pixels, or a reason."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.images.decode import UnusableImage, read_bytes, read_image
from pipeline.images.geometry import cut_crops, resize_image
from pipeline.recipes import Crop, Resize
from pipeline.shards.format import OK
from pipeline.shards.stopwatch import DECODE, READ, Stopwatch


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


def timed_sample(path: Path, resize: Resize, window: Crop, watch: Stopwatch) -> Sample:
    """Read a sample and note how long reading the file took, and how long the rest."""
    reading = 0.0

    def read(file: Path) -> bytes:
        nonlocal reading
        started = time.perf_counter()
        try:
            return read_bytes(file)
        finally:
            reading = time.perf_counter() - started

    started = time.perf_counter()
    try:
        return read_sample(path, resize, window, read)
    finally:
        watch.add(READ, reading)
        watch.add(DECODE, time.perf_counter() - started - reading)


def read_sample(
    path: Path,
    resize: Resize,
    window: Crop,
    read: Callable[[Path], bytes] | None = None,
) -> Sample:
    """Read, decode, resize and cut one file; see `read_image` for `read`.

    Raises
    ------
    ImageReadError
        The system, not the file, is at fault.
    """
    decoded = read_image(path, read)
    if decoded.image is None:
        return Sample(None, decoded.source_crc32, decoded.status, decoded.reason)
    try:
        canvas = resize_image(decoded.image, resize)
    except UnusableImage as fault:
        return Sample(None, decoded.source_crc32, fault.status, str(fault))
    return Sample(cut_crops(canvas, window), decoded.source_crc32)
