"""How alike an image and a caption are: the named similarities, each a matrix product away."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

# Terms that cancel leave rounding noise of about 1e-16 of their size where the true result is 0.
# The noise depends on the order of summation, so it would order items that are in fact equal.
_CANCELLED = 2.0**-40


@dataclass(frozen=True)
class Similarity:
    """A similarity of images and captions: greater is more alike.

    The two sides keep their roles whoever asks and whoever is searched, so that an asymmetric
    similarity (order-embeddings, Vendrov et al. 2016) fits the same interface.

    Attributes
    ----------
    name : as the embedding file's attribute `similarity` says it.
    prepare : (rows, dim) float32 -> (rows, dim) float64, applied once to each side.
    between : prepared images (n, dim), prepared captions (m, dim) -> (n, m) float64.
    """

    name: str
    prepare: Callable[[npt.NDArray[np.float32]], Matrix]
    between: Callable[[Matrix, Matrix], Matrix]


def _float64(rows: npt.NDArray[np.float32]) -> Matrix:
    return rows.astype(np.float64)


def _unit(rows: npt.NDArray[np.float32]) -> Matrix:
    wide = rows.astype(np.float64)
    norms = np.sqrt(np.einsum("rd,rd->r", wide, wide))
    norms[norms == 0] = 1.0
    wide /= norms[:, None]
    return wide


def _dot(images: Matrix, captions: Matrix) -> Matrix:
    return np.asarray(images @ captions.T)


def _cosine(images: Matrix, captions: Matrix) -> Matrix:
    scores = _dot(images, captions)
    scores[np.abs(scores) < _CANCELLED] = 0.0
    return scores


def _minus_squared_distance(images: Matrix, captions: Matrix) -> Matrix:
    image_squares = np.einsum("nd,nd->n", images, images)[:, None]
    caption_squares = np.einsum("md,md->m", captions, captions)[None, :]
    squares = image_squares + caption_squares
    scores = 2.0 * _dot(images, captions) - squares
    scores[scores > -_CANCELLED * squares] = 0.0
    return np.asarray(scores)


SIMILARITIES = {
    s.name: s
    for s in (
        # The zero vector has cosine 0 to everything.
        Similarity("cosine", _unit, _cosine),
        # Minus the squared distance |v - s|^2: the same ranks as the distance itself.
        Similarity("euclidean", _float64, _minus_squared_distance),
        Similarity("dot", _float64, _dot),
    )
}
"""Every similarity by its name."""
