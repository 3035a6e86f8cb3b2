"""Geometry of embeddings: projection to a plane, and cosines within and between images."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from pipeline.retrieval.similarity import Matrix, unit_rows
from pipeline.store.errors import WrongUsage

Point = tuple[float, float]  # (x, y) of a chart

Projection = Literal["pca", "tsne"]
PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
"""Principal components, fast; t-SNE (van der Maaten & Hinton 2008) keeps neighbours together."""

SEED = 0

_PERPLEXITY = 30.0
_LEAST = 4  # minimal number of rows for t-SNE


def placed(
    rows: npt.NDArray[np.floating], projection: Projection = "pca"
) -> tuple[npt.NDArray[np.float64], tuple[float, float] | None]:
    """Return positions (n, 2) of rows (n, dim), and the explained variance of "pca"."""
    if projection not in PROJECTIONS:
        raise WrongUsage(f"`projection={projection!r}` is not one of {', '.join(PROJECTIONS)}")
    # One thread, so that the positions do not depend on the number of cores.
    with threadpool_limits(limits=1):
        # scikit-learn starts from two principal components, which are NaN if all rows are equal,
        # and crashes at NaN.
        equal = projection == "tsne" and bool((rows == rows[:1]).all())
        if projection == "pca" or len(rows) < _LEAST or rows.shape[1] < 2 or equal:
            return principal_plane(rows)
        # Imported here because it takes a second.
        from sklearn.manifold import TSNE

        perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
        model = TSNE(perplexity=perplexity, init="pca", random_state=SEED, n_jobs=1)
        return model.fit_transform(rows.astype(np.float32)).astype(np.float64), None


def principal_plane(rows: npt.NDArray[np.floating]) -> tuple[Matrix, tuple[float, float]]:
    """Return rows (n, dim) on their first two principal components, (n, 2), and the variances.

    Explained variances are 0-1. The largest entry of a component is positive; a component that does
    not exist, for a single row or dimension, is 0.
    """
    wide = rows.astype(np.float64)
    left, values, right = np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.argmax(np.abs(right), axis=1)])
    points = np.zeros((len(rows), 2))
    components = min(2, len(values))
    points[:, :components] = (left * values * np.where(signs == 0, 1.0, signs))[:, :components]
    total = float(np.sum(values**2))
    shares = [float(v) ** 2 / total if total > 0 else 0.0 for v in values[:2]] + [0.0, 0.0]
    return points, (shares[0], shares[1])


def common_plane(
    one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]
) -> tuple[Matrix, Matrix, tuple[float, float]]:
    """Project rows (n, dim) and (m, dim), each centred on its own mean, onto a common plane."""
    # A common mean's first component would merely separate images from sentences, as in most
    # joint embeddings.
    sides = [rows.astype(np.float64) for rows in (one, other)]
    points, shares = principal_plane(np.concatenate([s - s.mean(axis=0) for s in sides]))
    return points[: len(one)], points[len(one) :], shares


@dataclass(frozen=True)
class Closeness:
    """Mean cosines of pairs of sentences."""

    within: float  # of two sentences of the same image
    between: float  # of two sentences of different images


def closeness(
    rows: npt.NDArray[np.floating], image_rows: npt.NDArray[np.int64]
) -> Closeness | None:
    """Return the mean cosines of sentences (captions, dim); None if there is no pair of a kind."""
    units = unit_rows(rows)
    counts = np.bincount(image_rows)
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, image_rows, units)
    self_products = float(np.sum(units**2))  # pairs of a sentence with itself, which do not count
    within = float(np.sum(sums**2)) - self_products
    everything = float(np.sum(sums.sum(axis=0) ** 2)) - self_products
    pairs_within = int(np.sum(counts * (counts - 1)))
    pairs_between = len(rows) * (len(rows) - 1) - pairs_within
    if not pairs_within or not pairs_between:
        return None
    return Closeness(within / pairs_within, (everything - within) / pairs_between)
