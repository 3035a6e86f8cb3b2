"""Projection of high-dimensional rows to a plane."""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from pipeline.retrieval.geometry import principal_plane
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
        if projection == "pca" or len(rows) < _LEAST:
            return principal_plane(rows)
        # Imported here because it takes a second.
        from sklearn.manifold import TSNE

        perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
        model = TSNE(perplexity=perplexity, init="pca", random_state=SEED, n_jobs=1)
        return model.fit_transform(rows.astype(np.float32)).astype(np.float64), None
