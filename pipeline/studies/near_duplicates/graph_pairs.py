"""Pairs among millions of rows: a graph yields candidates, which are scored like exact pairs."""

from collections.abc import Iterator, Sequence

import numpy as np

from pipeline.retrieval.approximate import ApproximateIndex, build_index
from pipeline.retrieval.search import Gallery
from pipeline.retrieval.similarity import Vectors
from pipeline.store.progress import Progress, no_progress
from pipeline.studies.near_duplicates.pairs import Pairs, margin, scored
from pipeline.studies.near_duplicates.parts import Subset

NEIGHBOURS = 32
"""Candidates per row. Groups may be larger, since they are joined through shared neighbours."""

_ROWS_AT_ONCE = 4096
_SAMPLE = 200


class GraphPairs:
    """Finds pairs through a graph; all rows are held in memory, and pairs may be missed."""

    def __init__(self, parts: Sequence[Subset], threshold: float, *, between: bool) -> None:
        # Share of sampled rows whose nearest other row is found; None until `pairs` is exhausted.
        self.recall: float | None = None
        self._threshold = threshold
        self._ids = [row_id for part in parts for row_id in part.ids]
        dim = parts[0].features.row_shape[-1]
        self._rows: Vectors = np.empty((len(self._ids), dim), np.float32)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        for part, end in zip(parts, ends, strict=True):
            for start in range(0, len(part), _ROWS_AT_ONCE):
                stop = min(start + _ROWS_AT_ONCE, len(part))
                first = end - len(part)
                self._rows[first + start : first + stop] = part.vectors(start, stop)
        whole = slice(0, len(self._ids))
        # Rows of each graph, and the rows that query it. With `between` each part has its own
        # graph, queried with all later parts, so that copies within a part do not displace those in
        # another.
        self._queries = (
            [
                (slice(end - len(part), end), slice(end, len(self._ids)))
                for part, end in zip(parts, ends, strict=True)
                if len(part) and end < len(self._ids)
            ]
            if between
            else [(whole, whole)] * (len(self._ids) > 1)
        )

    def pairs(self, progress: Progress = no_progress) -> Iterator[Pairs]:
        """Yield the pairs found, some of them twice."""
        total = sum(asking.stop - asking.start for _, asking in self._queries)
        reached: list[bool] = []
        done = 0
        for rows, asking in self._queries:
            index = build_index(Gallery("images", self._ids[rows], self._rows[rows], "cosine"))
            reached += self._sampled(index, rows, asking)
            for start in range(asking.start, asking.stop, _ROWS_AT_ONCE):
                stop = min(start + _ROWS_AT_ONCE, asking.stop)
                yield self._near(index, rows.start, start, stop)
                progress(done := done + stop - start, total, 0)
        self.recall = float(np.mean(reached)) if reached else None

    def _near(self, index: ApproximateIndex, first: int, start: int, stop: int) -> Pairs:
        """Return pairs of rows `start` to `stop` - 1 with rows of a graph from `first` on."""
        distances, near = index.candidates(self._rows[start:stop], NEIGHBOURS)
        # For vectors of length 1 the squared distance is 2 - 2 cosine.
        least = self._threshold - margin(self._rows.shape[1])
        query, rank = np.nonzero((near >= 0) & (1 - distances / 2 >= least))
        one, other = query + start, near[query, rank] + first
        different = one != other
        one, other = one[different], other[different]
        return scored(
            self._rows, self._rows, np.minimum(one, other), np.maximum(one, other), self._threshold
        )

    def _sampled(self, index: ApproximateIndex, rows: slice, asking: slice) -> list[bool]:
        """Return for sampled rows whether the graph finds one as near as the true nearest."""
        step = max(1, (asking.stop - asking.start) // _SAMPLE)
        sample = np.arange(asking.start, asking.stop, step)[:_SAMPLE]
        scores = self._rows[sample] @ self._rows[rows].T
        near = index.candidates(self._rows[sample], NEIGHBOURS)[1]
        if rows == asking:
            scores[np.arange(len(sample)), sample - rows.start] = -np.inf
            near[near == (sample - rows.start)[:, None]] = -1
        reached = np.where(near >= 0, np.take_along_axis(scores, near, axis=1), -np.inf)
        best = scores.max(axis=1) - margin(self._rows.shape[1])
        return [bool(hit) for hit in reached.max(axis=1) >= best]
