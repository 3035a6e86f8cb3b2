"""The simulation of tests between equal systems with few trainings."""

from statistics import NormalDist

import numpy as np
import pytest

from bench.comparing import image_margins, missed, trained_bounds


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_single_trainings_are_rejected_as_often_as_normal_ones(spread: float) -> None:
    """The margin varies by images and two trainings, the interval by images alone."""
    rng = np.random.default_rng(0)
    margins = rng.normal(size=(500, 1)) + rng.normal(size=(1, 4000))
    found = missed(trained_bounds(margins, spread, (1, 1), rng), 0.0)
    normal = NormalDist(0, (1 + 2 * spread**2) ** 0.5)
    assert found == pytest.approx(200 * normal.cdf(-NormalDist().inv_cdf(0.975)), abs=3)


def test_several_trainings_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    margins = np.zeros((2000, 300)) + rng.normal(size=(2000, 1))
    widths = [np.ptp(trained_bounds(margins, 2.0, s, rng), axis=0).mean() for s in ((1, 1), (3, 3))]
    assert widths[1] > 1.3 * widths[0]


def test_equal_systems_have_no_margin() -> None:
    margins = image_margins(1.0, 20, np.random.default_rng(2))
    assert margins.shape == (1000, 20)
    assert abs(margins.mean()) < 3
