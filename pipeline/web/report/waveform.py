"""Waveform of a sound as a small SVG."""

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

WIDTH, HEIGHT = 224, 24
"""Size in units of the drawing; as wide as the thumbnails above it."""


def waveform(samples: npt.NDArray[np.float32], rate: int) -> Markup:
    """Return the SVG of a sound, with its minimum and maximum in each of `WIDTH` columns.

    The loudest sample fills the height; silence is a line. A file without sound has no line.

    Parameters
    ----------
    samples : (samples,) float32. Mono samples.
    rate : int. Sampling rate in Hz, for the label.
    """
    if not len(samples):
        return Markup()
    edges = np.linspace(0, len(samples), min(WIDTH, len(samples)) + 1).astype(int)
    low = np.minimum.reduceat(samples, edges[:-1])
    high = np.maximum.reduceat(samples, edges[:-1])
    middle, loudest = HEIGHT / 2, max(float(np.abs(samples).max()), 1e-9)
    step = WIDTH / len(low)
    there = [(k + 0.5, middle - middle * v / loudest) for k, v in enumerate(high.tolist())]
    back = [(k + 0.5, middle - middle * v / loudest) for k, v in enumerate(low.tolist())]
    points = " ".join(f"{x * step:.1f},{y:.1f}" for x, y in [*there, *reversed(back)])
    return Markup(
        f'<svg class="waveform" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="its sound, {len(samples) / rate:.1f} s">'
        f'<polygon points="{points}" fill="currentColor" stroke="currentColor" '
        'stroke-width="0.5"/></svg>'
    )
