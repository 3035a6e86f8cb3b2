"""Boxes of regions: area and overlap.

A box is x0 y0 x1 y1 in pixels of the image, counted from 0 at its upper left corner; the right and
bottom edges are exclusive, so that x1 - x0 is the width. (VOC files count from 1 and include the
last pixel: subtract 1 from xmin and ymin, keep xmax and ymax.)
"""

import numpy as np
import numpy.typing as npt

from pipeline.regions import RegionError


def as_boxes(boxes: npt.ArrayLike) -> np.ndarray:
    """Return (n, 4) finite numbers as float64 boxes; an empty input becomes (0, 4)."""
    array = np.asarray(boxes, np.float64)
    if array.size == 0:
        return array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4 or not np.isfinite(array).all():
        raise RegionError(
            f"found boxes of shape {array.shape}; expected finite numbers (n, 4), "
            "x0 y0 x1 y1 in each row"
        )
    return array


def areas(boxes: npt.ArrayLike) -> np.ndarray:
    """Return the area of each of (n, 4) boxes in pixels, (n,) float64; 0 for inverted boxes."""
    x0, y0, x1, y1 = as_boxes(boxes).T
    result: np.ndarray = np.maximum(x1 - x0, 0) * np.maximum(y1 - y0, 0)
    return result


def iou(a: npt.ArrayLike, b: npt.ArrayLike) -> np.ndarray:
    """Return the intersection over union, (A, B) float64 in 0-1, of boxes (A, 4) with boxes (B, 4).

    Two boxes without an area have 0.
    """
    a, b = as_boxes(a), as_boxes(b)
    corner = np.maximum(a[:, None, :2], b[None, :, :2])
    size = np.maximum(np.minimum(a[:, None, 2:], b[None, :, 2:]) - corner, 0)
    shared = size[..., 0] * size[..., 1]
    either = areas(a)[:, None] + areas(b)[None, :] - shared
    result: np.ndarray = np.divide(shared, either, out=np.zeros_like(shared), where=either > 0)
    return result
