"""Canonical correlation analysis in closed form from moments, for many ridges at once.

Both sides are centred, their covariances regularised, Cx + a I and Cy + b I, and whitened with
A A' = (Cx + a I)^-1 and B B' = (Cy + b I)^-1. The singular vectors A' Cxy B = U R V' yield the
directions A U and B V and the correlations R, whichever roots A and B are chosen.

The side of lower rank is diagonalised once for all its ridges; the other is factorised by Cholesky
once per ridge. Eigenvectors without variance have no covariance with the other side and are
dropped, so that the problem size is bounded by the number of images, not of features. Each pair of
ridges then costs one symmetric eigenproblem of that size.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, solve_triangular
from scipy.sparse.linalg import eigsh

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import Doubles
from pipeline.heads.inputs.pairs import Pairs, first_captions_of

_IMAGES = 256  # images per block of float64 copies, with their captions
_NOTHING = 1e-9  # correlations below this are rounding errors


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and covariances of pairs, float64, with the denominator n - 1."""

    image_mean: Doubles  # (d,)
    caption_mean: Doubles  # (e,)
    images: Doubles  # covariance (d, d)
    captions: Doubles  # covariance (e, e)
    cross: Doubles  # covariance (d, e)
    image_rank: int  # upper bound of the rank of `images`
    caption_rank: int  # and of `captions`


@dataclass(frozen=True, eq=False)
class Directions:
    """Canonical directions in columns, by descending correlation, with fixed signs."""

    images: Doubles  # (d, k), of regularised variance 1
    captions: Doubles  # (e, k), of regularised variance 1
    correlations: Doubles  # (k,) under the regularised variances, above 1e-9


def moments_of(pairs: Pairs) -> Moments:
    """Return means and covariances of pairs, summed in float64 over blocks in one pass."""
    first = first_captions_of(pairs.image_of_caption)
    (d,), (e,), n = pairs.images.row_shape, pairs.captions.row_shape, len(pairs.image_of_caption)
    image_sum, caption_sum = np.zeros(d), np.zeros(e)
    images, captions, cross = np.zeros((d, d)), np.zeros((e, e)), np.zeros((d, e))
    for start in range(0, len(pairs.image_ids), _IMAGES):
        stop = min(start + _IMAGES, len(pairs.image_ids))
        x = pairs.images.take(np.arange(start, stop)).astype(np.float64)
        y = pairs.captions.take(np.arange(first[start], first[stop])).astype(np.float64)
        if start == 0:  # shift the data towards zero, against cancellation in the covariances
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
        min(d, len(pairs.image_ids) - 1),
        min(e, n - 1),
    )


class CanonicalCorrelation:
    """Canonical correlation analysis of given moments, for any ridges."""

    def __init__(self, moments: Moments) -> None:
        """Diagonalise the side of lower rank."""
        self._swapped = moments.caption_rank < moments.image_rank
        small, large, cross = moments.images, moments.captions, moments.cross
        if self._swapped:
            small, large, cross = large, small, cross.T
        values, vectors = np.linalg.eigh(small)
        self._largest = max(float(values[-1]), 0.0)
        self._smallest = float(values[0])
        self._resolution = len(values) * np.finfo(np.float64).eps
        varies = values > self._resolution * self._largest
        self._values, self._vectors = values[varies], vectors[:, varies]
        self._large, self._cross = large, self._vectors.T @ cross
        self._factorised: tuple[float, Doubles, Doubles, Doubles] | None = None

    def largest_eigenvalues(self) -> tuple[float, float]:
        """Return the largest eigenvalue of the images' covariance and of the captions'."""
        start = np.ones(len(self._large))
        if not (self._large @ start).any():
            # Of a column that is not 0 the image is not 0 either; ARPACK's start must not become 0.
            start = self._large[self._large.diagonal().argmax()]
        if not start.any():
            other = 0.0
        elif len(start) > 2:
            other = float(eigsh(self._large, 1, v0=start, return_eigenvectors=False)[0])
        else:
            other = float(np.linalg.eigvalsh(self._large)[-1])
        return (other, self._largest) if self._swapped else (self._largest, other)

    def solve(self, image_ridge: float, caption_ridge: float, dim: int = 0) -> Directions:
        """Return `dim` canonical directions (0: all) for terms added to both diagonals."""
        ridge, other_ridge = image_ridge, caption_ridge
        if self._swapped:
            ridge, other_ridge = other_ridge, ridge
        try:
            if self._smallest + ridge <= self._resolution * (self._largest + ridge):
                raise np.linalg.LinAlgError("an eigenvalue is zero")
            lower, half, gram = self._other_side(other_ridge)
            scale = 1.0 / np.sqrt(self._values + ridge)
            left, correlations = _top_singular(half, gram, scale, dim)
            if len(correlations) and correlations[0] > 1.0 + 1e-6:
                raise np.linalg.LinAlgError(f"the first correlation is {correlations[0]:g}")
        except np.linalg.LinAlgError as error:
            raise HeadError(
                f"the covariance of a side is numerically singular ({error}), with "
                f"{image_ridge:g} added to the images' and {caption_ridge:g} to the captions'; "
            ) from error
        if len(correlations) == 0:
            raise HeadError(
                "images and captions of the training split do not correlate: the features of a "
                "side are constant, or tiny compared with its ridge; check them, or scale them up"
            )
        weighted = scale[:, None] * left
        of_small = self._vectors @ weighted
        of_large = solve_triangular(lower, half.T @ weighted / correlations, lower=True, trans="T")
        to_image, to_caption = (of_large, of_small) if self._swapped else (of_small, of_large)
        largest = np.abs(to_image).argmax(axis=0)
        # Directions are unique up to their sign: the largest entry of an image's is positive.
        sign = np.where(to_image[largest, np.arange(len(correlations))] < 0, -1.0, 1.0)
        return Directions(to_image * sign, to_caption * sign, correlations)

    def _other_side(self, ridge: float) -> tuple[Doubles, Doubles, Doubles]:
        """Return L of L L' = C + ridge, then cross L^-T and its Gram matrix, which is cached."""
        if self._factorised is None or self._factorised[0] != ridge:
            lower = np.linalg.cholesky(self._large + ridge * np.eye(len(self._large)))
            half = solve_triangular(lower, self._cross.T, lower=True).T
            self._factorised = (ridge, np.asarray(lower, np.float64), half, half @ half.T)
        return self._factorised[1:]


def _top_singular(
    half: Doubles, gram: Doubles, scale: Doubles, dim: int
) -> tuple[Doubles, Doubles]:
    """Return at most `dim` left singular vectors and values of diag(scale) half, descending."""
    size = len(scale)
    count = min(dim or size, size, half.shape[1])
    if count == 0:
        return np.zeros((size, 0)), np.zeros(0)
    scaled = scale[:, None] * gram * scale
    _, vectors = eigh(scaled, subset_by_index=(size - count, size - 1))
    vectors = vectors[:, ::-1]
    # Not the square roots of the Gram matrix's eigenvalues, which have only half the digits.
    lengths = np.linalg.norm(half.T @ (scale[:, None] * vectors), axis=0)
    order = np.argsort(-lengths, kind="stable")
    significant = order[lengths[order] > _NOTHING]
    return vectors[:, significant], lengths[significant]
