"""Boxes of regions: overlap, union, clipping, and non-maximum suppression.

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


def union(boxes: npt.ArrayLike) -> np.ndarray:
    """Return the smallest box around (n, 4) boxes, (4,) of their dtype; n is at least 1."""
    array = np.asarray(boxes)
    if not len(as_boxes(array)):
        raise RegionError("the union of no boxes is undefined; pass at least one")
    return np.concatenate([array[:, :2].min(0), array[:, 2:].max(0)])


def clip(boxes: npt.ArrayLike, width: float, height: float) -> np.ndarray:
    """Return (n, 4) float64 boxes clipped to their image; a box outside it has no area left."""
    return np.clip(as_boxes(boxes), 0, [width, height, width, height])


def require_inside(boxes: npt.ArrayLike, width: float, height: float, where: str) -> None:
    """Check that (n, 4) boxes have an area and are within an image of this size."""
    corners = as_boxes(boxes)
    inside = (corners[:, :2] >= 0).all(1) & (corners[:, 2:] <= [width, height]).all(1)
    for fault, wrong in (
        ("has no area", areas(corners) == 0),
        (f"leaves the image of {width:g} x {height:g} pixels", ~inside),
    ):
        if wrong.any():
            k = int(np.argmax(wrong))
            raise RegionError(
                f"{where}: box {k}, {corners[k].tolist()}, {fault}; expected x0 y0 x1 y1 in pixels "
                "of the image, from 0, right and bottom exclusive"
            )


def nms(boxes: npt.ArrayLike, scores: npt.ArrayLike, threshold: float) -> np.ndarray:
    """Return the row numbers (k,) int64 that greedy non-maximum suppression keeps, best first.

    `boxes` (n, 4) that overlap a kept one by more than `threshold` (IoU, 0-1) are dropped, one of
    exactly `threshold` is kept; equal `scores` (n,) are in row order.
    """
    array, score = as_boxes(boxes), np.asarray(scores, np.float64)
    if score.shape != (len(array),) or np.isnan(score).any():
        raise RegionError(
            f"{len(array)} boxes have scores of shape {score.shape}; expected one number per box, "
            "not NaN"
        )
    order = np.argsort(-score, kind="stable")
    selected = []
    while order.size:
        best, order = order[0], order[1:]
        selected.append(best)
        order = order[iou(array[[best]], array[order])[0] <= threshold]
    return np.array(selected, np.int64)
