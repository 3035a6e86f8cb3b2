import numpy as np
import pytest

from pipeline.regions import RegionError
from pipeline.regions.boxes import areas, iou


def drawn(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return boxes with whole corners in a small field, so that many touch, match or are flat."""
    corners = rng.integers(0, 7, (n, 2, 2))
    return np.concatenate([corners.min(1), corners.max(1)], axis=1)


def naive_iou(a: np.ndarray, b: np.ndarray) -> float:
    """Count pixels."""
    field = np.zeros((2, 8, 8), bool)
    for k, (x0, y0, x1, y1) in enumerate((a, b)):
        field[k, y0:y1, x0:x1] = True
    either = (field[0] | field[1]).sum()
    return float((field[0] & field[1]).sum() / either) if either else 0.0


def test_overlap_is_that_of_counted_pixels() -> None:
    rng = np.random.default_rng(0)
    a, b = drawn(rng, 40), drawn(rng, 30)
    expected = [[naive_iou(x, y) for y in b] for x in a]
    np.testing.assert_array_equal(iou(a, b), expected)
    np.testing.assert_array_equal(iou(a.astype(np.float32), b), expected)
    assert iou(a, []).shape == (40, 0)
    assert iou([], []).shape == (0, 0)
    assert (iou(a, a).diagonal() == (areas(a) > 0)).all()


def test_what_is_no_box() -> None:
    with pytest.raises(RegionError, match=r"shape \(4,\)"):
        iou([1, 2, 3, 4], [[1, 2, 3, 4]])
