"""Exact test and interval of a mean difference over few images, by sign flips."""

import numpy as np

from pipeline.retrieval.ranking.bootstrap import LEVEL, SEED
from pipeline.retrieval.similarity import Matrix

MOST_EXACT = 14  # number of differences up to which all signs are tried; beyond it they are sampled
LEAST_SAMPLED_P = 1 / ((1 << MOST_EXACT) + 1)
"""The p of sampled signs if no sample is as far: an upper bound."""


def sign_flip_p(differences: Matrix) -> float:
    """Return the two-sided p of a mean of differences (n,): Fisher's randomisation test."""
    differing = differences[differences != 0]
    if not len(differing):
        return 1.0
    # If two systems are equal, each difference could as well have the other sign. There is no other
    # assumption: the test is exact for any number of images.
    sums = _signs(len(differing)) @ differing
    # Sums that are equal up to rounding count as well.
    further = int(np.count_nonzero(np.abs(sums) >= abs(differing.sum()) * (1 - 1e-12)))
    if len(differing) <= MOST_EXACT:
        return further / len(sums)
    # The observed signs count as one of the drawn ones.
    return (further + 1) / (len(sums) + 1)


def sign_flip_interval(differences: Matrix, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of the mean of differences (n,) that agrees with `sign_flip_p`."""
    # Means of subsets divide the line into intervals that contain the centre of a symmetric
    # distribution with equal probability (Hartigan 1969).
    members = _signs(len(differences)) > 0
    members = members[members.any(axis=1)]
    means = np.sort((members @ differences) / members.sum(axis=1))
    below = int((1 - level) / 2 * (len(means) + 1))
    if not below:
        return -np.inf, np.inf  # fewer than 6 differences at 95 %
    return float(means[below - 1]), float(means[-below])


def _signs(number: int) -> Matrix:
    """Return 1 and -1, (choices, number): all combinations of signs, or a sample of them."""
    if number <= MOST_EXACT:
        bits = np.arange(1 << number)[:, None] >> np.arange(number) & 1
    else:
        bits = np.random.default_rng(SEED).integers(2, size=(1 << MOST_EXACT, number))
    signs: Matrix = np.where(bits, -1.0, 1.0)
    return signs
