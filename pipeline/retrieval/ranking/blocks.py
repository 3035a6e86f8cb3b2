"""A block of similarities, and how many of its items rank before the correct one.

Similarities are computed in float64 and rounded to float32 before they are compared. The last bits
of a matrix product depend on an element's position in a tile; after rounding, equal captions are
equal for any block size. (Only a pair within about 1e-16 of a boundary between two float32 numbers
could still differ.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.similarity import SIMILARITIES, Vectors

Axis = Literal[0, 1]
Ranks = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


class Block(Protocol):
    """The similarities (images, captions) float32 of some of both, on any device."""

    def finite(self) -> bool:
        """Return whether all similarities are finite."""

    def pairs(self, images: Ranks, captions: Ranks) -> Scores:
        """Return the similarities (pairs,) of given rows and columns of the block."""

    def before(self, best: Scores, best_places: Ranks, places: Ranks, gallery: Axis) -> Ranks:
        """Count for each query the items that rank before its correct one, (queries,) int64.

        `best` and `best_places` (queries,) are the correct items' scores and positions in the
        tie-breaking order, `places` (items,) those of the block's items, on the axis `gallery`.
        """


BlockOf = Callable[[str, Any, Any], Block]
"""Computes a block from the similarity's name and the rows of images and captions.

The rows are `Vectors`, or on a device its arrays of them.
"""


@dataclass(frozen=True, eq=False)
class HostBlock:
    """A block, (images, captions) float32, computed and counted by numpy."""

    scores: Scores

    @classmethod
    def of(cls, similarity: str, images: Vectors, captions: Vectors) -> "HostBlock":
        """Compare all images with all captions, in float64."""
        named = SIMILARITIES[similarity]
        # Sides are prepared block by block: cheap compared with the product, and without a float64
        # copy of a whole side. Too large numbers are found by `finite`.
        with np.errstate(over="ignore", invalid="ignore"):
            wide = named.between(named.prepare(images), named.prepare(captions))
            return cls(wide.astype(np.float32, order="C"))

    def finite(self) -> bool:
        """Return whether all similarities are finite."""
        return bool(np.isfinite(self.scores).all())

    def pairs(self, images: Ranks, captions: Ranks) -> Scores:
        """Return the similarities of given rows and columns."""
        return np.asarray(self.scores[images, captions])

    def before(self, best: Scores, best_places: Ranks, places: Ranks, gallery: Axis) -> Ranks:
        """Count for each query the items that rank before its correct one."""
        thresholds = np.expand_dims(best, gallery)
        better = np.count_nonzero(self.scores > thresholds, axis=gallery)
        # Ties are few, so only their places in the order are looked up, not a second comparison of
        # the whole block.
        equal = np.unravel_index(np.flatnonzero(self.scores == thresholds), self.scores.shape)
        query, item = equal[1 - gallery], equal[gallery]
        first = query[places[item] < best_places[query]]
        return np.asarray(better + np.bincount(first, minlength=len(best)))
