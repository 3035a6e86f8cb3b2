"""Paired test of two systems on the same images, for any figure: bootstrap, or sign flips for few.

A training has one part per gallery (the folds of a protocol), whose images are resampled
separately; embeddings, localized phrases and captions define figures as functions of the counts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.ranking.bootstrap import LEVEL, SEED
from pipeline.retrieval.ranking.small_galleries import FEWEST_IMAGES
from pipeline.studies.significance.sign_flips import (
    LEAST_SAMPLED_P,
    sign_flip_interval,
    sign_flip_p,
)

RESAMPLES = 10_000
"""Number of bootstrap resamples: p cannot fall below 0.0002."""

# Fewer differences have the same sign by chance in more than 5 of 100 comparisons.
_FEWEST_DIFFERING = 6
_COUNTS = 1 << 18  # image counts held at once: 2 MB, in a core's cache
Doubles = npt.NDArray[np.float64]


class Statistic(Protocol):
    """One figure of one training, as a function of the count of each image."""

    @property
    def each(self) -> Doubles:
        """(statistics, images), the inputs of the figure by image."""

    def figures(self, times: Doubles) -> Doubles:
        """Return the figure (draws,) for (draws, images): how often each image is drawn.

        NaN if no image is drawn on which the figure depends.
        """


@dataclass(frozen=True)
class Totals:
    """A figure that is a function of sums over images."""

    each: Doubles  # (statistics, images) float64, summands
    of_totals: Callable[[Doubles], Doubles]
    """From the sums (statistics, draws) to the figures (draws,)."""

    def figures(self, times: Doubles) -> Doubles:
        """Return the figures (draws,) for counts (draws, images)."""
        # Not a BLAS product, whose last bits depend on the number of threads.
        totals: Doubles = np.einsum("si,di->sd", self.each, times)
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.of_totals(totals)


def mean_of(values: Doubles, images: npt.NDArray[np.int64], num_images: int) -> Totals:
    """Return the mean of values (queries,), any number of which belong to an image."""
    each = np.stack(
        [np.bincount(images, minlength=num_images), np.bincount(images, values, num_images)]
    )
    return Totals(each.astype(np.float64), lambda totals: totals[1] / totals[0])


Training = Sequence[Statistic]


class Outputs(Protocol):
    """Outputs of one training of a system for some images."""

    @property
    def file(self) -> Path:
        """Location, for messages."""

    def require_same(self, other: "Outputs") -> None:
        """Raise unless images, queries and galleries are those of another."""

    def parts(self, measure: str) -> Training:
        """Return the parts of a figure by its name."""


@dataclass(frozen=True)
class Comparison:
    """One figure of two systems on the same images."""

    measure: str
    first: tuple[float, ...]  # its value for each training
    second: tuple[float, ...]
    low: float
    high: float
    """95 % interval of the difference of means, with `low`; infinite for fewer than 6 images."""
    p: float
    """Two-sided, below 0.05 exactly if the interval excludes 0. For a bootstrap with n draws, k of
    which have the other sign, 2 (k + 1) / (n + 1), at most 1; for fewer than `FEWEST_IMAGES` images
    that of `sign_flip_p`."""
    p_is_bound: bool
    """Whether no draw has the other sign, so that `p` is an upper bound: more draws lower it."""
    num_images: int  # number of test images
    differing: int  # number of images on which the systems differ

    @property
    def margin(self) -> float:
        """The mean of the first system minus that of the second."""
        return float(np.mean(self.first) - np.mean(self.second))

    @property
    def too_few(self) -> bool:
        """Whether the images, or those on which the systems differ, are too few for a verdict."""
        return self.num_images < FEWEST_IMAGES or 0 < self.differing < _FEWEST_DIFFERING

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0, with enough images."""
        return not self.too_few and (self.low > 0 or self.high < 0)

    @property
    def verdict(self) -> str:
        """Short description of the result."""
        if not self.differing:
            return "equal on every image"
        if self.num_images < FEWEST_IMAGES:
            return "too few images to decide"
        if self.too_few:
            return f"too few images to decide, as {self.differing} of them differ"
        return "decided" if self.decided else "too close to call"


def compare_outputs(
    first: Sequence[Outputs], second: Sequence[Outputs], measure: str, resamples: int = RESAMPLES
) -> Comparison:
    """Compare one figure of two systems, each with one output per training."""
    for other in (*first[1:], *second):
        other.require_same(first[0])
    ours, theirs = ([of.parts(measure) for of in side] for side in (first, second))
    return compare_trainings(measure, ours, theirs, resamples)


def compare_trainings(
    measure: str,
    first: Sequence[Training],
    second: Sequence[Training],
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare one figure of two systems on the same images, in the same order."""
    ours, theirs = (tuple(map(figure, side)) for side in (first, second))
    differing = int(np.count_nonzero(_differing(first, second)))
    images = sum(part.each.shape[1] for part in first[0])
    if images < FEWEST_IMAGES:
        # Pseudo-values (Efron & Tibshirani 1993, chapter 11): without the variance between
        # trainings.
        differences = _pseudo_values(first) - _pseudo_values(second)
        # Means that differ only by rounding are equal.
        differences[np.isclose(differences, 0, atol=1e-9)] = 0.0
        low, high = sign_flip_interval(differences)
        p = sign_flip_p(differences)
        bound = p == LEAST_SAMPLED_P
        return Comparison(measure, ours, theirs, low, high, p, bound, images, differing)
    draws = margins(first, second, resamples, seed)
    other = min(np.count_nonzero(draws <= 0), np.count_nonzero(draws >= 0))
    p = min(1.0, 2 * (1 + int(other)) / (len(draws) + 1))
    # The bounds that agree with p (Davison & Hinkley 1997, section 5.2.1).
    low, high = percentile_interval(draws)
    return Comparison(measure, ours, theirs, low, high, p, not other, images, differing)


def percentile_interval(draws: Doubles) -> tuple[float, float]:
    """Return the 95 % interval of bootstrap draws: those at (n + 1) / 40 from either end."""
    ordered = np.sort(draws)
    below = max(1, int((1 - LEVEL) / 2 * (len(draws) + 1)))
    return float(ordered[below - 1]), float(ordered[-below])


def figure(training: Training) -> float:
    """Return the figure of a training: the mean over its parts."""
    return float(np.mean([part.figures(np.ones((1, part.each.shape[1])))[0] for part in training]))


def margins(
    first: Sequence[Training], second: Sequence[Training], resamples: int, seed: int = SEED
) -> Doubles:
    """Return (draws,): the difference of two systems' figures in a paired bootstrap."""
    sizes = {tuple(part.each.shape[1] for part in of) for of in (*first, *second)}
    if len(sizes) > 1:
        numbers = " and ".join(str(list(size)) for size in sorted(sizes))
        raise ValueError(f"the trainings have {numbers} images; expected the same")
    # Both systems are measured on the same draws, so that an image that is hard for both does not
    # widen the interval.
    figures = _drawn([*first, *second], resamples, seed)
    ours, theirs = np.split(figures, [len(first)], axis=1)
    # As many trainings, drawn with replacement: the variance between seeds widens the interval.
    rng = np.random.default_rng([seed, 1])
    draws = _mean_of_draws(ours, rng) - _mean_of_draws(theirs, rng)
    if not np.isfinite(draws).any():
        raise ValueError("no draw has an image that the figure depends on")
    return draws[np.isfinite(draws)]


def _drawn(trainings: Sequence[Training], resamples: int, seed: int) -> Doubles:
    """Return (resamples, trainings): the figure of each training in the same draws."""
    rng = np.random.default_rng(seed)
    figures = []
    for of_gallery in zip(*trainings, strict=True):
        times = _times(of_gallery[0].each.shape[1], resamples, rng)
        rows = [np.column_stack([part.figures(t) for part in of_gallery]) for t in times]
        figures.append(np.concatenate(rows))
    means: Doubles = np.mean(figures, axis=0)
    return means


def _times(images: int, resamples: int, rng: np.random.Generator) -> Iterator[Doubles]:
    """Yield (some draws, images): how often each image is drawn, with replacement."""
    at_once = max(1, _COUNTS // images)
    for start in range(0, resamples, at_once):
        draws = min(at_once, resamples - start)
        drawn = rng.integers(images, size=(draws, images)) + images * np.arange(draws)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=draws * images)
        yield counts.reshape(draws, images).astype(np.float64)


def _mean_of_draws(figures: Doubles, rng: np.random.Generator) -> Doubles:
    """Return (draws,): for each row, the mean over as many columns drawn with replacement."""
    drawn = rng.integers(figures.shape[1], size=figures.shape)
    means: Doubles = np.take_along_axis(figures, drawn, axis=1).mean(axis=1)
    return means


def _differing(first: Sequence[Training], second: Sequence[Training]) -> npt.NDArray[np.bool_]:
    """Return (images,): whether the mean over trainings of any statistic differs."""
    ours, theirs = (
        [np.mean([of[k].each for of in side], axis=0) for k in range(len(side[0]))]
        for side in (first, second)
    )
    parts = zip(ours, theirs, strict=True)
    return np.concatenate([(~np.isclose(a, b, rtol=0, atol=1e-9)).any(axis=0) for a, b in parts])


def _pseudo_values(trainings: Sequence[Training]) -> Doubles:
    """Return (images,) values whose mean is the figure, the mean over trainings."""
    of_each = [np.concatenate([_pseudo_values_of(part) for part in of]) for of in trainings]
    means: Doubles = np.mean(of_each, axis=0)
    return means


def _pseudo_values_of(part: Statistic) -> Doubles:
    images = part.each.shape[1]
    (whole,) = part.figures(np.ones((1, images)))
    if images == 1:
        return np.array([whole])
    without = part.figures(np.ones((images, images)) - np.eye(images))
    # n times the figure minus n - 1 times that without the image; for a mean, its own value. If
    # only one image has queries, there is no figure without it.
    return np.where(np.isfinite(without), images * whole - (images - 1) * without, whole)
