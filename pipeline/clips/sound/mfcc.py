"""Mel-frequency cepstral coefficients (MFCC), with every window and filter specified."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.fft import dct, rfft

# Windows per block of spectra: only the coefficients of a long sound stay in memory.
_WINDOWS_AT_ONCE = 4096
# Of a band, so that silence has coefficients.
_LEAST_POWER = 1e-10


@dataclass(frozen=True)
class Mfcc:
    """Parameters of the MFCC of a mono sound; the defaults are windows of 32 ms every 10 ms."""

    rate: int = 16_000  # Hz
    window: int = 512  # samples; windows do not extend beyond the sound
    hop: int = 160  # samples
    bands: int = 40
    """Number of triangular filters of equal width in mel from 0 to half the rate, with peak 1. Mel
    is 2595 log10(1 + Hz / 700)."""
    coefficients: int = 13
    """Number of coefficients of the orthonormal DCT-II of the bands' decibels."""
    reach: int = 2
    """Number of windows on either side for the regression of slopes."""

    @property
    def dim(self) -> int:
        """Numbers per window: coefficients, their slopes (delta), and slopes of these."""
        return 3 * self.coefficients

    def __call__(self, sound: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return each window's coefficients with first and second slopes, (windows, dim) float32.

        `sound` is (samples,) float32, mono, at `rate`, full scale 1.
        """
        plain = self.plain(sound)
        slopes = _slopes(plain, self.reach)
        return np.concatenate([plain, slopes, _slopes(slopes, self.reach)], 1).astype(np.float32)

    def plain(self, sound: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return the coefficients without slopes, (windows, coefficients) float64."""
        if len(sound) < self.window:
            return np.zeros((0, self.coefficients))
        views = np.lib.stride_tricks.sliding_window_view(sound, self.window)[:: self.hop]
        # A periodic Hann window, as for spectra.
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.window) / self.window)
        filters = _filters(self.rate, self.window, self.bands)
        parts = []
        for start in range(0, len(views), _WINDOWS_AT_ONCE):
            spectrum = rfft(views[start : start + _WINDOWS_AT_ONCE] * hann, axis=1)
            power = (spectrum.real**2 + spectrum.imag**2) @ filters.T
            decibels = 10 * np.log10(np.maximum(power, _LEAST_POWER))
            parts.append(dct(decibels, axis=1, norm="ortho")[:, : self.coefficients])
        return np.concatenate(parts)


@cache
def _filters(rate: int, window: int, bands: int) -> npt.NDArray[np.float64]:
    """Return the triangular filters, (bands, window // 2 + 1)."""
    mel = np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), bands + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.arange(window // 2 + 1) * rate / window
    rising = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling))


def _slopes(rows: npt.NDArray[np.float64], reach: int) -> npt.NDArray[np.float64]:
    """Return the least-squares slope of each column over `reach` rows on either side."""
    if not len(rows):
        return rows
    # The first and the last row are repeated beyond the ends.
    padded = np.pad(rows, ((reach, reach), (0, 0)), mode="edge")
    steps = range(1, reach + 1)
    last = len(rows) + reach
    ahead = sum(k * (padded[reach + k : last + k] - padded[reach - k : last - k]) for k in steps)
    return np.asarray(ahead / (2 * sum(k * k for k in steps)))
