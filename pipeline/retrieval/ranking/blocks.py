"""A block of similarities, and how many of its items are before what a query looks for.

Similarities are computed in float64 and rounded to float32 before they are compared. The last
bits of a matrix product depend on where in a tile an element falls; rounded, equal captions are
equal again, whatever the block size. (Only a pair within about 1e-16 of a boundary between two
float32 numbers could still differ.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.similarity import SIMILARITIES

Axis = Literal[0, 1]
Ranks = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Vectors = npt.NDArray[np.float32]


class Block(Protocol):
    """The similarities (images, captions) float32 of some of both, wherever they lie."""

    def finite(self) -> bool:
        """Return whether every similarity is."""

    def pairs(self, images: Ranks, captions: Ranks) -> Scores:
        """Return the similarities (pairs,) of these rows with these columns of the block."""

    def before(self, best: Scores, own: Ranks, places: Ranks, gallery: Axis) -> Ranks:
        """Count for each query the items that are before what it looks for.

        Parameters
        ----------
        best : (queries,), the score of the item that each query looks for.
        own : (queries,), the place of that item in the order that breaks ties.
        places : (items,), the places of the block's items in that order.
        gallery : the axis of the items; the other is that of the queries.

        Returns
        -------
        (queries,) int64
        """


BlockOf = Callable[[str, Vectors, Vectors], Block]
"""Makes a block of a similarity's name and the rows of its images and of its captions."""


@dataclass(frozen=True, eq=False)
class HostBlock:
    """A block that numpy computes and counts.

    Attributes
    ----------
    scores : (images, captions) float32.
    """

    scores: Scores

    @classmethod
    def of(cls, similarity: str, images: Vectors, captions: Vectors) -> "HostBlock":
        """Compare all images with all captions, in float64.

        The sides are prepared block by block: that costs little beside the product, and no copy
        of a whole side is ever held.
        """
        named = SIMILARITIES[similarity]
        with np.errstate(over="ignore", invalid="ignore"):
            wide = named.between(named.prepare(images), named.prepare(captions))
            return cls(wide.astype(np.float32, order="C"))

    def finite(self) -> bool:
        """See `Block`."""
        return bool(np.isfinite(self.scores).all())

    def pairs(self, images: Ranks, captions: Ranks) -> Scores:
        """See `Block`."""
        return np.asarray(self.scores[images, captions])

    def before(self, best: Scores, own: Ranks, places: Ranks, gallery: Axis) -> Ranks:
        """See `Block`."""
        wanted = np.expand_dims(best, gallery)
        better = np.count_nonzero(self.scores > wanted, axis=gallery)
        equal = np.unravel_index(np.flatnonzero(self.scores == wanted), self.scores.shape)
        query, item = equal[1 - gallery], equal[gallery]
        first = query[places[item] < own[query]]
        return np.asarray(better + np.bincount(first, minlength=len(best)))
