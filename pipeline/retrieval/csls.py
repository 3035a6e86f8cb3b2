"""Cross-domain similarity local scaling (CSLS): cosines corrected for hubs.

A hub is near to everything and is found for every query. CSLS subtracts from a cosine how near both
rows are to the other side in general: the mean of their mean cosines with the nearest rows there.

Source: Conneau et al. 2018 (Word translation without parallel data), section 2.3, halved.
Deviation: the nearest rows are those of a reference split, such as the training split, not of the
    searched one. A similarity depends on its two rows alone, and no test row on another.
Relations: the reference is that of QB-Norm (Bogolin et al. 2022) and of nearest neighbour
    normalisation (Chowdhury et al. 2024), which correct one side.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.search import Gallery, SideName, nearest
from pipeline.retrieval.similarity import Vectors, unit_rows

NEIGHBOURS = 10
"""Number of nearest reference rows, as in the paper."""


def is_corrected(provenance: Mapping[str, Any]) -> bool:
    """Return whether the rows of an embedding file are those of `Reference.extended`."""
    return "csls" in provenance


class Reference:
    """Embeddings of a reference split, compared by cosine."""

    def __init__(self, images: Vectors, captions: Vectors) -> None:
        """Store (images, dim) and (captions, dim)."""
        rows: dict[SideName, Vectors] = {"images": images, "captions": captions}
        self._galleries = {side: _gallery(side, of_side) for side, of_side in rows.items()}

    def extended(self, rows: Vectors, side: SideName) -> Vectors:
        """Return (n, dim + 2) float32, of which the dot products of the two sides are CSLS.

        With x and y of length 1, and r the mean cosine with the nearest reference rows of the other
        side, an image is [x, -r(x) / 2, 1] and a caption [y, 1, -r(y) / 2]. Their dot product is
        cos(x, y) - (r(x) + r(y)) / 2.
        """
        other = self._galleries["captions" if side == "images" else "images"]
        hits = nearest(other, rows, side, NEIGHBOURS)
        return _extended(rows, hits.scores.mean(axis=1, dtype=np.float64), side)


def as_queries(rows: Vectors, side: SideName) -> Vectors:
    """Return queries (n, dim + 2) of extended rows, with r = 0: it is the same for all their hits.

    Hits of the other side then have CSLS, those of the same side the cosine, plus constants.
    """
    return _extended(rows, np.zeros(len(rows)), side)


def _gallery(side: SideName, rows: Vectors) -> Gallery:
    return Gallery(side, [f"{at:012d}" for at in range(len(rows))], rows, "cosine")


def _extended(rows: Vectors, r: npt.NDArray[np.float64], side: SideName) -> Vectors:
    ends = [-r / 2, np.ones(len(rows))]
    columns = np.stack(ends if side == "images" else ends[::-1], axis=1)
    return np.concatenate([unit_rows(rows), columns], axis=1).astype(np.float32)
