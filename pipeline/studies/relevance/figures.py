"""Figures of rankings with several relevant items: mAP@R, R-Precision, hits and nDCG."""

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import CUTOFFS
from pipeline.retrieval.search import Gallery, nearest
from pipeline.studies import StudyError
from pipeline.studies.relevance.relevance_file import Judged

Figures = dict[str, float | int]

_QUERIES_AT_ONCE, _HITS_AT_ONCE = 1024, 1 << 21


def relevance_figures(e: Embeddings, judged: Judged) -> Figures:
    """Return figures, per cent, averaged over the queries with a relevant item."""
    # R is the number of relevant items of a query; those outside the gallery are never found.
    relevant = judged.grades > 0
    asking, query = np.unique(judged.queries[relevant], return_inverse=True)
    if not len(asking):
        raise StudyError("no judged item has a grade above 0, so no query can be counted")
    items, grades = judged.items[relevant], judged.grades[relevant]
    order = np.lexsort((-grades, query))
    query, items, grades = query[order], items[order], grades[order]
    side, other = judged.sides
    rows = e.image_embeddings if side == "images" else e.caption_embeddings
    gallery = Gallery.of(e, other)
    starts = np.searchsorted(query, np.arange(len(asking) + 1))
    sums: dict[str, float] = {}
    most = min(max(*CUTOFFS, int(np.diff(starts).max())), len(gallery.ids))
    step = max(1, min(_QUERIES_AT_ONCE, _HITS_AT_ONCE // most))
    for first in range(0, len(asking), step):
        last = min(first + step, len(asking))
        pairs = slice(starts[first], starts[last])
        top = max(*CUTOFFS, int(np.diff(starts[first : last + 1]).max()))
        hits = nearest(gallery, rows[asking[first:last]], side, top).rows
        of_block = _of_block(hits, query[pairs] - first, items[pairs], grades[pairs])
        for name, values in of_block.items():
            sums[name] = sums.get(name, 0.0) + float(values.sum())
    return {
        "num_queries": len(asking),
        "relevant_per_query": len(items) / len(asking),
        **{name: 100.0 * total / len(asking) for name, total in sums.items()},
    }


def _of_block(
    hits: npt.NDArray[np.int64],
    query: npt.NDArray[np.int64],
    items: npt.NDArray[np.int64],
    grades: npt.NDArray[np.float64],
) -> dict[str, npt.NDArray[np.float64]]:
    """Return each figure of each query, 0 to 1, from its first hits (queries, top)."""
    queries, top = hits.shape
    # One more than the rows, so that item -1 of a query does not collide with the query before.
    stride = int(max(hits.max(), items.max())) + 2
    keys = query * stride + items
    sorted_keys = np.argsort(keys)
    hit_keys = np.arange(queries)[:, None] * stride + hits
    at = np.minimum(np.searchsorted(keys, hit_keys, sorter=sorted_keys), len(keys) - 1)
    pair = sorted_keys[at]
    gain = np.where(keys[pair] == hit_keys, grades[pair], 0.0)
    hit = gain > 0
    count = np.bincount(query, minlength=queries)
    ranks = np.arange(1, top + 1)
    right = np.cumsum(hit, axis=1)
    counted = np.where(hit & (ranks <= count[:, None]), right / ranks, 0.0)
    figures = {f"r{k}": hit[:, :k].any(axis=1).astype(float) for k in CUTOFFS}
    figures["r_precision"] = right[np.arange(queries), np.minimum(count, top) - 1] / count
    # Musgrave et al. 2020, eq. 4; Chun et al. 2022.
    figures["map_at_r"] = counted.sum(axis=1) / count
    ideal = np.zeros((queries, max(CUTOFFS)))
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    best = rank < max(CUTOFFS)
    ideal[query[best], rank[best]] = grades[best]
    # The grade as gain, discounted by log2(1 + rank) (Järvelin and Kekäläinen 2002).
    for k in CUTOFFS:
        figures[f"ndcg_{k}"] = _discounted(gain[:, :k]) / _discounted(ideal[:, :k])
    return figures


def _discounted(gain: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(gain @ (1.0 / np.log2(np.arange(2, gain.shape[1] + 2))))
