"""Canonical correlation analysis of pairs: their covariances, and the directions in closed form."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from pipeline.heads.data.pairs import Pairs, first_captions_of
from pipeline.heads.data.rows import Doubles
from pipeline.heads.errors import HeadError

_IMAGES = 256  # whose float64 copies, and those of their captions, are in memory together
_NOTHING = 1e-9  # a correlation that is rounding error


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and covariances of pairs; the denominator is one less than their number.

    Attributes
    ----------
    image_mean, caption_mean : (d,) and (e,).
    images, captions, cross : (d, d), (e, e) and (d, e).
    """

    image_mean: Doubles
    caption_mean: Doubles
    images: Doubles
    captions: Doubles
    cross: Doubles


def moments_of(pairs: Pairs) -> Moments:
    """Return means and covariances of pairs, summed in float64 over blocks of images, one pass."""
    first = first_captions_of(pairs.image_of_caption)
    (d,), (e,), n = pairs.images.row_shape, pairs.captions.row_shape, len(pairs.image_of_caption)
    image_sum, caption_sum = np.zeros(d), np.zeros(e)
    images, captions, cross = np.zeros((d, d)), np.zeros((e, e)), np.zeros((d, e))
    for start in range(0, len(pairs.image_ids), _IMAGES):
        stop = min(start + _IMAGES, len(pairs.image_ids))
        x = pairs.images.take(np.arange(start, stop)).astype(np.float64)
        y = pairs.captions.take(np.arange(first[start], first[stop])).astype(np.float64)
        if start == 0:  # values near zero, so that no digits cancel in the end
            image_shift, caption_shift = x.mean(axis=0), y.mean(axis=0)
        x -= image_shift
        y -= caption_shift
        times = np.diff(first[start : stop + 1]).astype(np.float64)
        of_pairs = x * np.sqrt(times)[:, None]
        image_sum += times @ x
        caption_sum += y.sum(axis=0)
        images += of_pairs.T @ of_pairs
        captions += y.T @ y
        cross += x.T @ np.add.reduceat(y, first[start:stop] - first[start])
    return Moments(
        image_shift + image_sum / n,
        caption_shift + caption_sum / n,
        (images - np.outer(image_sum, image_sum / n)) / (n - 1),
        (captions - np.outer(caption_sum, caption_sum / n)) / (n - 1),
        (cross - np.outer(image_sum, caption_sum / n)) / (n - 1),
    )


def canonical_directions(
    moments: Moments, image_ridge: float, caption_ridge: float, dim: int = 0
) -> tuple[Doubles, Doubles, Doubles]:
    """Return canonical directions and correlations, the largest first.

    Parameters
    ----------
    moments : of the training pairs.
    image_ridge, caption_ridge : added to the diagonals of the covariances.
    dim : at most so many; 0 for all.

    Returns
    -------
    (d, k), (e, k) float64
        Directions in columns: the regularised variance along each is 1. The number of largest
        absolute value of an image direction is positive.
    (k,) float64
        Correlations (with the regularised variances), above 1e-9.

    Raises
    ------
    HeadError
        A covariance is singular to rounding, or there is no correlation.
    """
    try:
        lower_x = np.linalg.cholesky(moments.images + image_ridge * np.eye(len(moments.images)))
        lower_y = np.linalg.cholesky(
            moments.captions + caption_ridge * np.eye(len(moments.captions))
        )
        half = solve_triangular(lower_x, moments.cross, lower=True)
        whitened = solve_triangular(lower_y, half.T, lower=True).T
        u, correlations, vt = np.linalg.svd(whitened, full_matrices=False)
        if correlations[0] > 1.0 + 1e-6:
            raise np.linalg.LinAlgError(f"the first correlation is {correlations[0]:g}")
    except np.linalg.LinAlgError as error:
        raise HeadError(
            f"the covariance of a side is singular to rounding ({error}), with {image_ridge:g} "
            f"added to the images' and {caption_ridge:g} to the captions'; raise the ridges"
        ) from error
    kept = int(np.count_nonzero(correlations > _NOTHING))
    if kept == 0:
        raise HeadError(
            "images and captions of the training split do not correlate at all: the features of "
            "a side never vary, or are tiny beside its ridge; check them, or scale them up"
        )
    kept = min(kept, dim or kept)
    to_image = solve_triangular(lower_x, u[:, :kept], lower=True, trans="T")
    to_caption = solve_triangular(lower_y, vt[:kept].T, lower=True, trans="T")
    largest = np.abs(to_image).argmax(axis=0)
    sign = np.where(to_image[largest, np.arange(kept)] < 0, -1.0, 1.0)
    return to_image * sign, to_caption * sign, correlations[:kept]
