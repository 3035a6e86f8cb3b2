"""How far the figures would move with other test images: confidence intervals by bootstrap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.ranks import Ranks
from pipeline.retrieval.recall import CUTOFFS, DIRECTIONS

Matrix = npt.NDArray[np.float64]

MEASURES = (*(f"r{k}" for k in CUTOFFS), "mean_inverted_rank")
"""What has an interval in each direction; `rsum` has one too."""

RESAMPLES, SEED, LEVEL = 1000, 0, 0.95

_NAMES = tuple(f"{d}_{m}" for d in DIRECTIONS for m in MEASURES)


@dataclass(frozen=True)
class RankedGallery:
    """The ranks of one gallery, from 0.

    Attributes
    ----------
    image_to_text : (images,) int64.
    text_to_image : (captions,) int64.
    image_rows : (captions,) int64, the row of each caption's image.
    """

    image_to_text: Ranks
    text_to_image: Ranks
    image_rows: Ranks


def intervals(
    galleries: Sequence[RankedGallery],
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> dict[str, float]:
    """Return percentile intervals of R@K, mean inverted rank and `rsum`.

    The percentile method of Efron & Tibshirani 1993, chapter 13, over images. A resample draws as
    many images as there are, with replacement, each with its captions: the queries of both
    directions. The captions of one image are found or missed together, so that drawing them one
    by one would promise too much, and `rsum` needs both directions of the same draw. The gallery
    stays whole, and the ranks as they are. Of several galleries (folds) each is drawn from by
    itself, and a resample's figure is the mean over them, as the figure is.

    Parameters
    ----------
    galleries : one, or the folds.
    resamples : draws, at least 1.
    seed : of numpy's default generator.
    level : of the two-sided interval, 0-1.

    Returns
    -------
    dict
        `<direction>_<measure>_low` and `_high` for `MEASURES`, and `rsum_low`, `rsum_high`; in
        the figures' units. Quantiles between two draws are interpolated.
    """
    low, high = _bounds(_figures(galleries, resamples, seed), level)
    bounds: dict[str, float] = {}
    for column, name in enumerate([*_NAMES, "rsum"]):
        bounds[f"{name}_low"] = float(low[column])
        bounds[f"{name}_high"] = float(high[column])
    return bounds


def margin_interval(
    galleries: Sequence[RankedGallery],
    others: Sequence[RankedGallery],
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> tuple[float, float]:
    """Return the percentile interval of one system's `rsum` less another's.

    A paired bootstrap: both systems are measured on the same draws of images, so that an image
    that is hard for both does not widen the interval. It tells more than whether the intervals
    of the two systems overlap.

    Parameters
    ----------
    galleries, others : of the two systems; the same images in the same order.
    resamples, seed, level : as in `intervals`.

    Raises
    ------
    ValueError
        The galleries differ in their numbers of images.
    """
    sizes = [[len(gallery.image_to_text) for gallery in of] for of in (galleries, others)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"the galleries have {sizes[0]} and {sizes[1]} images; expected the same")
    # The seed gives both the same draws, which depend on the numbers of images alone.
    drawn = [_figures(of, resamples, seed)[:, -1:] for of in (galleries, others)]
    low, high = _bounds(drawn[0] - drawn[1], level)
    return float(low[0]), float(high[0])


def _figures(galleries: Sequence[RankedGallery], resamples: int, seed: int) -> Matrix:
    """Return (resamples, `_NAMES` and `rsum`): the figures of each draw."""
    rng = np.random.default_rng(seed)
    figures = np.mean([_drawn(gallery, resamples, rng) for gallery in galleries], axis=0)
    summed = [column for column, name in enumerate(_NAMES) if "_inverted_" not in name]
    return np.column_stack([figures, figures[:, summed].sum(axis=1)])


def _bounds(figures: Matrix, level: float) -> Matrix:
    """Return (2, columns): the lower and the upper bound of each column."""
    tail = (1.0 - level) / 2.0
    bounds: Matrix = np.quantile(figures, [tail, 1.0 - tail], axis=0)
    return bounds


def _drawn(gallery: RankedGallery, resamples: int, rng: np.random.Generator) -> Matrix:
    """Return (resamples, 2 x measures): image_to_text, then text_to_image."""
    num_images = len(gallery.image_to_text)
    sums = np.concatenate(
        [
            _sums(gallery.image_to_text, np.arange(num_images), num_images),
            _sums(gallery.text_to_image, gallery.image_rows, num_images),
        ]
    )
    totals = np.empty((resamples, len(sums)))
    for total in totals:
        times = np.bincount(rng.integers(num_images, size=num_images), minlength=num_images)
        # Not a product of BLAS, whose last bits depend on the number of threads.
        np.einsum("sn,n->s", sums, times.astype(np.float64), out=total)
    half = len(MEASURES) + 1
    one_way, other = totals[:, :half], totals[:, half:]
    return np.hstack([one_way[:, 1:] / one_way[:, :1], other[:, 1:] / other[:, :1]])


def _sums(ranks: Ranks, image_rows: Ranks, num_images: int) -> Matrix:
    """Return (1 + measures, images): how many queries an image has, and the sum of each measure."""
    values = [np.ones(len(ranks)), *(100.0 * (ranks < k) for k in CUTOFFS), 1.0 / (ranks + 1)]
    return np.stack([np.bincount(image_rows, weights=v, minlength=num_images) for v in values])
