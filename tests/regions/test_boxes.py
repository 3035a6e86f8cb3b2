import numpy as np
import pytest

from pipeline.regions import RegionError
from pipeline.regions.boxes import areas, iou, nms


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


def naive_nms(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: (-scores[i], i)):
        if all(naive_iou(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


def test_overlap_is_that_of_counted_pixels() -> None:
    rng = np.random.default_rng(0)
    a, b = drawn(rng, 40), drawn(rng, 30)
    expected = [[naive_iou(x, y) for y in b] for x in a]
    np.testing.assert_array_equal(iou(a, b), expected)
    np.testing.assert_array_equal(iou(a.astype(np.float32), b), expected)
    assert iou(a, []).shape == (40, 0)
    assert iou([], []).shape == (0, 0)
    assert (iou(a, a).diagonal() == (areas(a) > 0)).all()


@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.5, 1.0])
def test_suppression_with_ties(threshold: float) -> None:
    rng = np.random.default_rng(1)
    for n in (0, 1, 2, 30):
        boxes, scores = drawn(rng, n), rng.integers(0, 4, n)
        assert nms(boxes, scores, threshold).tolist() == naive_nms(boxes, scores, threshold)


def test_what_is_no_box() -> None:
    with pytest.raises(RegionError, match=r"shape \(4,\)"):
        iou([1, 2, 3, 4], [[1, 2, 3, 4]])
    with pytest.raises(RegionError, match="not NaN"):
        nms([[0, 0, 1, 1]], [np.nan], 0.5)
