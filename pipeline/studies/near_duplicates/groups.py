"""Groups of near-duplicates: connected components of all pairs, and each row's nearest partner."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pipeline.studies.near_duplicates.pairs import Pairs
from pipeline.studies.near_duplicates.parts import RowNumbers

_PAIRS_HELD = 1 << 20


class Grouping:
    """Union of rows into groups, pair by pair, in memory proportional to the rows.

    Attributes
    ----------
    score : (rows,) float64. Highest score of each row's pairs; 0 without a pair.
    nearest : (rows,) int64. Its partner there, ties by `rank`; -1 without a pair.
    """

    def __init__(self, rank: RowNumbers) -> None:
        """Start with every row in its own group.

        Parameters
        ----------
        rank : (rows,) int64. Position of each row in an order independent of the row numbers.
        """
        rows = len(rank)
        self.score: npt.NDArray[np.float64] = np.zeros(rows)
        self.nearest: RowNumbers = np.full(rows, -1)
        self._rank = rank
        # The first row of each row's group.
        self._group: RowNumbers = np.arange(rows)
        self._held: list[Pairs] = []

    def add(self, pairs: Pairs) -> None:
        """Join the rows of pairs."""
        if not len(pairs.scores):
            return
        self._held.append(pairs)
        if sum(len(held.scores) for held in self._held) >= _PAIRS_HELD:
            self._join()

    def groups(self) -> Iterator[RowNumbers]:
        """Yield the rows (n,) of each group of two or more, sorted by rank.

        By descending score; ties by the rank of the first row.
        """
        self._join()
        rows = np.flatnonzero(self.nearest >= 0)
        rows = rows[np.lexsort((self._rank[rows], self._group[rows]))]
        starts = np.flatnonzero(np.diff(self._group[rows], prepend=-1))
        found = np.split(rows, starts[1:]) if len(rows) else []
        yield from sorted(found, key=lambda group: (-self.score[group].max(), self._rank[group[0]]))

    def _join(self) -> None:
        if not self._held:
            return
        first, second, scores = (
            np.concatenate([getattr(held, name) for held in self._held])
            for name in ("first", "second", "scores")
        )
        self._held = []
        self._improve(np.concatenate((first, second)), np.concatenate((second, first)), scores)
        rows = len(self._group)
        ends = np.concatenate((first, np.arange(rows))), np.concatenate((second, self._group))
        links = coo_array((np.ones(len(ends[0]), np.bool_), ends), shape=(rows, rows))
        component = connected_components(links, directed=False)[1]
        self._group = np.unique(component, return_index=True)[1][component]

    def _improve(
        self, rows: RowNumbers, partners: RowNumbers, scores: npt.NDArray[np.float64]
    ) -> None:
        """Keep the best partner of each row; `scores` are repeated for both directions."""
        held = np.flatnonzero(self.nearest >= 0)
        rows = np.concatenate((rows, held))
        partners = np.concatenate((partners, self.nearest[held]))
        scores = np.concatenate((scores, scores, self.score[held]))
        order = np.lexsort((self._rank[partners], -scores, rows))
        best = order[np.flatnonzero(np.diff(rows[order], prepend=-1))]
        self.score[rows[best]], self.nearest[rows[best]] = scores[best], partners[best]
