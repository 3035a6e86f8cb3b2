"""Groups of near-duplicates: connected components of all pairs, and each row's nearest partner."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pipeline.store.shards.row_keys import RowNumbers
from pipeline.studies.near_duplicates.pairs import Pairs

_BUFFERED_PAIRS = 1 << 20


class Grouping:
    """Union of rows into groups, pair by pair, in memory proportional to the rows."""

    def __init__(self, rank: RowNumbers) -> None:
        rows = len(rank)
        # (rows,) each: highest score of a row and its partner, ties by `rank`; 0 and -1 if none.
        self.score: npt.NDArray[np.float64] = np.zeros(rows)
        self.nearest: RowNumbers = np.full(rows, -1)
        self._rank = rank
        # The first row of each row's group.
        self._group: RowNumbers = np.arange(rows)
        self._buffer: list[Pairs] = []

    def add(self, pairs: Pairs) -> None:
        """Join the rows of pairs."""
        if not len(pairs.scores):
            return
        self._buffer.append(pairs)
        if sum(len(pairs.scores) for pairs in self._buffer) >= _BUFFERED_PAIRS:
            self._join()

    def groups(self) -> Iterator[RowNumbers]:
        """Yield the rows (n,) of each group, by rank; groups by descending score."""
        self._join()
        rows = np.flatnonzero(self.nearest >= 0)
        rows = rows[np.lexsort((self._rank[rows], self._group[rows]))]
        starts = np.flatnonzero(np.diff(self._group[rows], prepend=-1))
        groups = np.split(rows, starts[1:]) if len(rows) else []
        yield from sorted(
            groups, key=lambda group: (-self.score[group].max(), self._rank[group[0]])
        )

    def _join(self) -> None:
        if not self._buffer:
            return
        first, second, scores = (
            np.concatenate([getattr(pairs, name) for pairs in self._buffer])
            for name in ("first", "second", "scores")
        )
        self._buffer = []
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
        paired = np.flatnonzero(self.nearest >= 0)
        rows = np.concatenate((rows, paired))
        partners = np.concatenate((partners, self.nearest[paired]))
        scores = np.concatenate((scores, scores, self.score[paired]))
        order = np.lexsort((self._rank[partners], -scores, rows))
        best = order[np.flatnonzero(np.diff(rows[order], prepend=-1))]
        self.score[rows[best]], self.nearest[rows[best]] = scores[best], partners[best]
