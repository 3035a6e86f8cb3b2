"""Exact test and interval of a mean difference over few images, by flipping its signs."""

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.significance.bootstrap import LEVEL, SEED

MOST_EXACT = 14
"""Differences up to which all signs are tried; of more, as many are drawn at random."""

Doubles = npt.NDArray[np.float64]


def sign_flip_p(differences: Doubles) -> float:
    """Return how likely a mean at least as far from 0 is, if either system may be the better one.

    Fisher's randomisation test of pairs: where two systems are alike, a difference could as well
    have the other sign. It assumes nothing else, and is exact for any number of images.

    Parameters
    ----------
    differences : (images,) one system's score of each image less the other's.

    Returns
    -------
    float
        Two-sided; 1 where all differences are 0. Of more than `MOST_EXACT` that are not, the signs
        are drawn 2^14 times with a fixed seed.
    """
    differing = differences[differences != 0]
    if not len(differing):
        return 1.0
    sums = _signs(len(differing)) @ differing
    # Sums that are equal but for rounding count.
    further = int(np.count_nonzero(np.abs(sums) >= abs(differing.sum()) * (1 - 1e-12)))
    if len(differing) <= MOST_EXACT:
        return further / len(sums)
    # The signs as they are belong to those that are drawn.
    return (further + 1) / (len(sums) + 1)


def sign_flip_interval(differences: Doubles, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of the mean difference that belongs to `sign_flip_p`.

    The means of all subsets of the differences divide the line into intervals that are equally
    likely to hold the centre of a symmetric distribution (Hartigan 1969), so that order statistics
    of them are bounds, however few differences there are. Fewer than 6 have no bounds at 95 %: they
    are then infinite.

    Parameters
    ----------
    differences : (images,), as for `sign_flip_p`; zeros count.
    level : of the interval, 0-1.

    Returns
    -------
    float, float
        Lower and upper bound.
    """
    members = _signs(len(differences)) > 0
    members = members[members.any(axis=1)]
    means = np.sort((members @ differences) / members.sum(axis=1))
    below = int((1 - level) / 2 * (len(means) + 1))
    if not below:
        return -np.inf, np.inf
    return float(means[below - 1]), float(means[-below])


def _signs(number: int) -> Doubles:
    """Return 1 and -1, (choices, number): all choices of so many signs, or a sample of them."""
    if number <= MOST_EXACT:
        bits = np.arange(1 << number)[:, None] >> np.arange(number) & 1
    else:
        bits = np.random.default_rng(SEED).integers(2, size=(1 << MOST_EXACT, number))
    signs: Doubles = np.where(bits, -1.0, 1.0)
    return signs
