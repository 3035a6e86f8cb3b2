"""Sign flips against all flips by hand, scipy's permutation test, and their level by simulation."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import permutation_test

from pipeline.studies.significance.sign_flips import MOST_EXACT, sign_flip_interval, sign_flip_p


@pytest.mark.parametrize("number", [1, 2, 5, 9])
def test_all_signs_are_tried(number: int) -> None:
    x = np.random.default_rng(number).normal(0.7, 1, number)
    sums = [abs(np.dot(signs, x)) for signs in product((1, -1), repeat=number)]
    assert sign_flip_p(x) == np.mean([s >= abs(x.sum()) - 1e-12 for s in sums])
    assert sign_flip_p(np.concatenate([x, np.zeros(30)])) == sign_flip_p(-x) == sign_flip_p(x)


def test_many_differences_agree_with_scipy() -> None:
    x = np.random.default_rng(1).normal(0.4, 1, 40)
    oracle = permutation_test(
        (x,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(0)
    )
    assert sign_flip_p(x) == pytest.approx(oracle.pvalue, abs=0.01)
    assert 0 < sign_flip_p(np.ones(40)) < 1e-4  # never 0 of drawn signs


def test_no_difference_is_no_evidence() -> None:
    for number in (1, 6, 49):
        zeros = np.zeros(number)
        assert sign_flip_p(zeros) == 1.0
        bounds = (-np.inf, np.inf) if number < 6 else (0.0, 0.0)
        assert sign_flip_interval(zeros) == bounds


def test_bounds_are_order_statistics_of_the_means_of_subsets() -> None:
    x = np.random.default_rng(2).normal(size=7)
    means = sorted(float(np.mean(s)) for k in range(1, 8) for s in combinations(x, k))
    # 127 means part the line into 128 pieces; 3 of them are at most 2.5 in 100.
    assert sign_flip_interval(x) == pytest.approx((means[2], means[-3]))
    assert sign_flip_interval(x[:5]) == (-np.inf, np.inf)
    assert sign_flip_interval(x[:6]) == pytest.approx((x[:6].min(), x[:6].max()))


@pytest.mark.parametrize("number", [6, 10, MOST_EXACT + 2])
def test_the_level_is_kept_however_few_there_are(number: int) -> None:
    rng = np.random.default_rng(number)
    bounds = np.array([sign_flip_interval(rng.laplace(3, 1, number)) for _ in range(150)])
    held = (bounds[:, 0] <= 3) & (bounds[:, 1] >= 3)
    assert 0.9 <= held.mean() <= 1.0
