"""Whether an image shows a part of another one, possibly mirrored, by pixel comparison.

Normalised cross-correlation (Lewis 1995, fast template matching) of small grey images of local
contrast, which is robust to light, compression and a line of text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.fft import irfft2, next_fast_len, rfft2
from scipy.ndimage import gaussian_filter

Pixels = npt.NDArray[np.float32]
Shape = tuple[int, int]

SIDE = 48
"""Square root of the number of pixels at which images are compared."""

SCALES = tuple(k / 20 for k in range(20, 9, -1))
"""Side lengths of a template, relative to the largest that fits into the other image."""

LEAST_PIXELS = 144
"""Minimal number of template pixels: fewer match some window of a large field by chance."""

_SIGMA, _GREY_LEVELS = 2.0, 2.0
# A window with a smaller contrast relative to the usual one is flat, and matches nothing.
_FLAT = 0.05


def small_grey(image: Image.Image) -> Image.Image:
    """Return a grey image with about `SIDE` x `SIDE` pixels and the original aspect ratio."""
    width, height = image.size
    scale = SIDE / (width * height) ** 0.5
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return image.convert("L").resize(size, Image.Resampling.BILINEAR)


@dataclass(frozen=True, eq=False)
class Field:
    """A small grey image that is searched for templates."""

    pixels: Pixels  # (h, w) float32, local contrast

    @classmethod
    def of(cls, grey: Image.Image) -> "Field":
        """Return the field of an image of `small_grey`."""
        return cls(_local_contrast(grey))

    @property
    def shape(self) -> Shape:
        """Height and width."""
        height, width = self.pixels.shape
        return height, width

    @cached_property
    def spectrum(self) -> npt.NDArray[np.complex64]:
        """Fourier transform of the pixels, padded to `padded`."""
        return rfft2(self.pixels, s=padded(self.shape))

    def spread(self, shape: Shape) -> npt.NDArray[np.float64]:
        """Return the root of the sum of squared deviations of every window of a shape (h, w)."""
        total, squares = (_window_sums(sums, shape) for sums in self._sums)
        size = shape[0] * shape[1]
        return np.sqrt(np.maximum(squares - total**2 / size, _FLAT * size))

    @cached_property
    def _sums(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        wide = self.pixels.astype(np.float64)
        # Summed-area tables, of values and squares: any window is four of their entries.
        padded_sums = (np.pad(v.cumsum(0).cumsum(1), ((1, 0), (1, 0))) for v in (wide, wide**2))
        one, other = padded_sums
        return one, other


@dataclass(frozen=True, eq=False)
class Templates:
    """An image at all `SCALES`, each also mirrored, as templates for fields of one shape."""

    shapes: Sequence[Shape]  # one per scale, in pixels
    spectra: npt.NDArray[np.complex64]
    """(2 * scales, ...) complex64. Conjugated; each scale, then its mirror image."""

    @classmethod
    def of(cls, grey: Image.Image, field: Shape) -> "Templates":
        """Return the templates for fields of a shape (h, w); the first one fills the field."""
        height, width = field
        fitting = min(width / grey.width, height / grey.height)
        sizes = [(width, height)] + [
            (
                min(width, max(1, round(grey.width * fitting * scale))),
                min(height, max(1, round(grey.height * fitting * scale))),
            )
            for scale in SCALES
        ]
        sizes = [sizes[0], *(size for size in sizes if size[0] * size[1] >= LEAST_PIXELS)]
        sizes = list(dict.fromkeys(sizes))
        stack = np.zeros((2 * len(sizes), *padded(field)), np.float32)
        for k, (w, h) in enumerate(sizes):
            part = _unit(_local_contrast(grey.resize((w, h), Image.Resampling.BILINEAR)))
            stack[2 * k, :h, :w], stack[2 * k + 1, :h, :w] = part, part[:, ::-1]
        return cls([(h, w) for w, h in sizes], rfft2(stack).conj())


def correlation(field: Field, templates: Templates) -> float:
    """Return the highest correlation of a template with a window of the field, -1 to 1."""
    shape = field.shape
    products = irfft2(field.spectrum * templates.spectra, s=padded(shape))
    best = -1.0
    for k, (h, w) in enumerate(templates.shapes):
        inside = products[2 * k : 2 * k + 2, : shape[0] - h + 1, : shape[1] - w + 1]
        best = max(best, float((inside.max(axis=0) / field.spread((h, w))).max()))
    return best


def padded(shape: Shape) -> Shape:
    """Return the padded shape of the Fourier transform, at which windows do not wrap around."""
    height, width = (next_fast_len(side, real=True) for side in shape)
    return height, width


def _local_contrast(grey: Image.Image) -> Pixels:
    """Return pixels minus their local mean, divided by their local standard deviation, (h, w)."""
    pixels = np.asarray(grey, np.float32)
    pixels = pixels - gaussian_filter(pixels, _SIGMA, mode="nearest")
    spread = np.sqrt(gaussian_filter(pixels**2, _SIGMA, mode="nearest"))
    return pixels / (spread + _GREY_LEVELS)


def _unit(part: Pixels) -> Pixels:
    centred = part - part.mean()
    return centred / max(float(np.sqrt(np.sum(centred**2))), (_FLAT * part.size) ** 0.5)


def _window_sums(sums: npt.NDArray[np.float64], shape: Shape) -> npt.NDArray[np.float64]:
    h, w = shape
    return sums[h:, w:] - sums[:-h, w:] - sums[h:, :-w] + sums[:-h, :-w]
