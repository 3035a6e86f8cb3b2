"""Pillow's antialiased resize of 8-bit RGB, bit for bit, for any window of the result.

Pillow resizes columns and rows in two passes in integers: weights are multiples of 2^-22, and each
pass rounds to 8 bits. From Pillow 13 on, rows of tall images are first. Here nothing outside the
window is computed, and `passes` is compiled for the processor. `exact_resize` returns None where
numba (extra `fast`) cannot be used, and where the installed Pillow does not compute the same.
"""

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
Size = tuple[int, int]
Box = tuple[int, int, int, int]

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
"""Pillow's filters by the names of recipes."""

_BITS = 22
# A photograph's sides and the canvas' are the same for many images of a set. Those of 12 million
# pixels need up to 50 kB each.
_CACHED_SIDES = 1024


class Taps(NamedTuple):
    """What each column (or row) of a window is the sum of."""

    first: npt.NDArray[np.int32]
    """(n,) first column of the image."""
    counts: npt.NDArray[np.int32]
    """(n,) number of columns, at least 1."""
    weights: npt.NDArray[np.int32]
    """(n, most) weights times 2^22; 0 after `counts`."""

    @property
    def span(self) -> tuple[int, int]:
        """The first column of the image that is needed, and the one after the last."""
        return int(self.first[0]), int(self.first[-1] + self.counts[-1])

    def after(self, start: int) -> "Taps":
        """Return the taps of an image without the columns before `start`."""
        return self._replace(first=self.first - np.int32(start))


def triangle(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Pillow's bilinear filter, of support 1."""
    x = np.abs(x)
    return np.where(x < 1.0, 1.0 - x, 0.0)


def cubic(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Pillow's bicubic filter, a = -0.5, of support 2."""
    a, x = -0.5, np.abs(x)
    inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1.0, inner, np.where(x < 2.0, outer, 0.0))


_SHAPES = {"bilinear": (triangle, 1.0), "bicubic": (cubic, 2.0)}


@lru_cache(maxsize=_CACHED_SIDES)
def taps(old: int, new: int, start: int, stop: int, interpolation: str) -> Taps:
    """Return the taps of columns `start` to `stop` of `new`, of an image with `old` columns."""
    shape, support = _SHAPES[interpolation]
    scale = old / new
    widened = max(scale, 1.0)
    support *= widened
    centres = (np.arange(start, stop) + 0.5) * scale
    first = np.maximum(np.trunc(centres - support + 0.5), 0).astype(np.int32)
    end = np.minimum(np.trunc(centres + support + 0.5), old).astype(np.int32)
    count = end - first
    at = np.arange(count.max())
    weights = shape((at + first[:, None] - centres[:, None] + 0.5) * (1.0 / widened))
    weights[at >= count[:, None]] = 0.0
    # Added one after the other, as in Pillow: another order would round differently.
    weights /= np.cumsum(weights, axis=1)[:, -1:]
    rounded = np.trunc(weights * (1 << _BITS) + np.where(weights < 0, -0.5, 0.5))
    return Taps(first, count, rounded.astype(np.int32))


Resizer = Callable[[Pixels, Size, Box, str], Pixels]
"""Function of pixels (h, w, 3), the size (width, height) of the canvas, a window (left, top, right,
bottom) of it and the interpolation, that returns the window."""


@cache
def exact_resize() -> Resizer | None:
    """Return a function with the results of the installed Pillow, or None if there is none."""
    try:
        from pipeline.images.decoding.passes import columns_pass, rows_pass
    except Exception:  # not installed, or broken: Pillow resizes to the same pixels
        return None

    def resize(
        pixels: Pixels, size: Size, window: Box, interpolation: str, rows_first: RowsFirst
    ) -> Pixels:
        (height, width), (left, top, right, bottom) = pixels.shape[:2], window
        lines = np.ascontiguousarray(pixels).reshape(height, 3 * width)
        columns = taps(width, size[0], left, right, interpolation)
        rows = taps(height, size[1], top, bottom, interpolation)
        if rows_first(height - size[1], width - size[0]):
            start, stop = columns.span
            lines = rows_pass(lines, *rows, 3 * start, 3 * stop)
            lines = columns_pass(lines, *columns.after(start), 0, len(lines))
        else:
            start, stop = rows.span
            lines = columns_pass(lines, *columns, start, stop)
            lines = rows_pass(lines, *rows.after(start), 0, lines.shape[1])
        return lines.reshape(bottom - top, right - left, 3)

    # A later Pillow, Pillow-SIMD, or a processor for which its compiler fuses multiplications and
    # additions may round differently: features have the results of the Pillow that is installed.
    orders = (partial(resize, rows_first=rule) for rule in (tall_rows_first, columns_first))
    return next((order for order in orders if _is_pillows(order)), None)


RowsFirst = Callable[[int, int], bool]
"""Function of the rows and columns that the canvas lacks: whether rows are resized first."""


def tall_rows_first(rows: int, columns: int) -> bool:
    """Return the order of Pillow 13 and later."""
    return rows > 0 and rows > 2 * columns


def columns_first(rows: int, columns: int) -> bool:
    """Return the order of Pillow before 13."""
    return False


def _is_pillows(resize: Resizer) -> bool:
    pixels = np.random.default_rng(0).integers(0, 256, (97, 131, 3), np.uint8)
    image = Image.fromarray(pixels)
    return all(
        np.array_equal(
            resize(pixels, size, (0, 0, *size), name), np.asarray(image.resize(size, FILTERS[name]))
        )
        for size in ((47, 61), (120, 23), (150, 131), (131, 97), (106, 47), (107, 48), (140, 96))
        for name in FILTERS
    )
