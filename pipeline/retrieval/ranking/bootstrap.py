"""Bootstrap confidence intervals of the figures over test images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.retrieval.measures import DIRECTIONS, IN_RSUM, WITH_INTERVAL
from pipeline.retrieval.ranking.ranks import Ranks
from pipeline.retrieval.similarity import Matrix

RESAMPLES, SEED, LEVEL = 1000, 0, 0.95

_NAMES = tuple(measure.name(d) for d in DIRECTIONS for measure in WITH_INTERVAL)


@dataclass(frozen=True)
class RankedGallery:
    """The ranks of one gallery, from 0."""

    image_to_text: Ranks  # (images,)
    text_to_image: Ranks  # (captions,)
    image_rows: Ranks  # (captions,), row of each caption's image


def intervals(
    galleries: Sequence[RankedGallery],
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> dict[str, float]:
    """Return percentile intervals of the measures that have one, and of `rsum`, in their units.

    The percentile method of Efron & Tibshirani 1993, chapter 13, over images. A resample draws as
    many images as there are, with replacement, each with its captions: the queries of both
    directions. The captions of one image are correlated, so resampling them one by one would make
    the intervals too narrow, and `rsum` needs both directions of the same resample. The gallery and
    the ranks stay the same. Folds are resampled separately, and figures are means over them.
    """
    low, high = _bounds(_figures(galleries, resamples, seed), level)
    bounds: dict[str, float] = {}
    for column, name in enumerate([*_NAMES, "rsum"]):
        bounds[f"{name}_low"] = float(low[column])
        bounds[f"{name}_high"] = float(high[column])
    return bounds


def mean_intervals(
    values: Matrix,
    image_rows: Ranks,
    num_images: int,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = LEVEL,
) -> Matrix:
    """Return bounds (2, measures) of the means of `values` (measures, queries) over images.

    As in `intervals`, a resample draws images, also those without queries, each with all its
    queries; `image_rows` (queries,) are the queries' images. NaN without queries.
    """
    counted = np.vstack([np.ones(len(image_rows)), values])
    sums: Matrix = np.stack(
        [np.bincount(image_rows, weights=v, minlength=num_images) for v in counted]
    ).astype(np.float64)
    totals = _totals(sums, resamples, np.random.default_rng(seed))
    drawn = totals[totals[:, 0] > 0]
    if not len(drawn):
        return np.full((2, len(values)), np.nan)
    return _bounds(drawn[:, 1:] / drawn[:, :1], level)


def _figures(galleries: Sequence[RankedGallery], resamples: int, seed: int) -> Matrix:
    """Return (resamples, `_NAMES` and `rsum`): the figures of each resample."""
    rng = np.random.default_rng(seed)
    figures = np.mean([_drawn(gallery, resamples, rng) for gallery in galleries], axis=0)
    summed = [column for column, name in enumerate(_NAMES) if name in IN_RSUM]
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
    totals = _totals(sums, resamples, rng)
    half = len(WITH_INTERVAL) + 1
    one_way, other = totals[:, :half], totals[:, half:]
    return np.hstack([one_way[:, 1:] / one_way[:, :1], other[:, 1:] / other[:, :1]])


def _totals(sums: Matrix, resamples: int, rng: np.random.Generator) -> Matrix:
    """Return (resamples, sums): the totals of sums (sums, images) over resampled images."""
    num_images = sums.shape[1]
    totals = np.empty((resamples, len(sums)))
    for total in totals:
        times = np.bincount(rng.integers(num_images, size=num_images), minlength=num_images)
        # Not a BLAS product, whose last bits depend on the number of threads.
        np.einsum("sn,n->s", sums, times.astype(np.float64), out=total)
    return totals


def _sums(ranks: Ranks, image_rows: Ranks, num_images: int) -> Matrix:
    """Return (1 + measures, images): number of queries of an image, and the sum of each measure."""
    values = [np.ones(len(ranks)), *(m.each(ranks) for m in WITH_INTERVAL if m.each)]
    return np.stack([np.bincount(image_rows, weights=v, minlength=num_images) for v in values])
