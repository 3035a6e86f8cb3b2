"""Rows of many dimensions as points of a plane."""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from pipeline.errors import WrongUsage
from pipeline.retrieval.geometry import principal_plane

Projection = Literal["pca", "tsne"]
PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
"""Principal components, at once; t-SNE (van der Maaten & Hinton 2008) keeps neighbours together."""

SEED = 0

_PERPLEXITY = 30.0
_LEAST = 4  # rows of t-SNE


def placed(
    rows: npt.NDArray[np.floating], projection: Projection = "pca"
) -> tuple[npt.NDArray[np.float64], tuple[float, float] | None]:
    """Return the places (n, 2) of rows (n, dim), and the variance's shares of principal components.

    Fewer than four rows have no t-SNE and are placed by their principal components. The same rows
    have the same places on the same machine, on any number of cores.

    Raises
    ------
    WrongUsage
        There is no such projection.
    """
    if projection not in PROJECTIONS:
        raise WrongUsage(f"`projection={projection!r}` is not one of {', '.join(PROJECTIONS)}")
    with threadpool_limits(limits=1):
        if projection == "pca" or len(rows) < _LEAST:
            return principal_plane(rows)
        # Here, since it takes a second to import.
        from sklearn.manifold import TSNE

        perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
        model = TSNE(perplexity=perplexity, init="pca", random_state=SEED, n_jobs=1)
        return model.fit_transform(rows.astype(np.float32)).astype(np.float64), None
