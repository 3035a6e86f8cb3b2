"""Figures of rankings with several relevant items: mAP@R, R-Precision, hits and nDCG."""

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import CUTOFFS
from pipeline.retrieval.search import Gallery, nearest
from pipeline.studies.relevance.relevance_file import Judged, RelevanceError

Figures = dict[str, float | int]

_QUERIES_AT_ONCE, _HITS_AT_ONCE = 1024, 1 << 21


def relevance_figures(e: Embeddings, judged: Judged) -> Figures:
    """Return the figures of judged queries with a relevant item.

    An item is relevant if its grade is above 0; R is the number of relevant items of a query;
    items outside the gallery are never found. Ranks and ties are those of
    `pipeline.retrieval.search.nearest`.

    Parameters
    ----------
    e : Embeddings. Images and captions; all items of the other side are the gallery.
    judged : Judged. Rows of `e`.

    Returns
    -------
    dict of str to float
        `num_queries`; `relevant_per_query`, the mean of R. In per cent, averaged over the queries:
        `r1`, `r5`, `r10`, whether a relevant item is among the first K; `r_precision`, the fraction
        of relevant items among the first R; `map_at_r`, the sum of the precisions at the ranks up
        to R of relevant items, divided by R (Musgrave et al. 2020, eq. 4; Chun et al. 2022);
        `ndcg_1`, `ndcg_5`, `ndcg_10` with the grade as gain and the discount log2(1 + rank)
        (Järvelin and Kekäläinen 2002), divided by that of the ideal order.

    Raises
    ------
    RelevanceError
        No query has a relevant item.
    EmbeddingsError
        A similarity is not finite.
    """
    relevant = judged.grades > 0
    asking, query = np.unique(judged.queries[relevant], return_inverse=True)
    if not len(asking):
        raise RelevanceError("no judged item has a grade above 0, so no query can be counted")
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
        found = _of_block(hits, query[pairs] - first, items[pairs], grades[pairs])
        for name, values in found.items():
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
    """Return each figure of each query, 0 to 1, from its first hits.

    Parameters
    ----------
    hits : (queries, top). Rows of the gallery, best first; top is at least R of each query, or the
        whole gallery.
    query, items, grades : (pairs,). The relevant items, by query and descending grade.
    """
    queries, top = hits.shape
    # One more than the rows, so that item -1 of a query does not collide with the query before.
    stride = int(max(hits.max(), items.max())) + 2
    keys = query * stride + items
    sorted_keys = np.argsort(keys)
    asked = np.arange(queries)[:, None] * stride + hits
    place = np.minimum(np.searchsorted(keys, asked, sorter=sorted_keys), len(keys) - 1)
    pair = sorted_keys[place]
    gain = np.where(keys[pair] == asked, grades[pair], 0.0)
    hit = gain > 0
    count = np.bincount(query, minlength=queries)
    ranks = np.arange(1, top + 1)
    right = np.cumsum(hit, axis=1)
    counted = np.where(hit & (ranks <= count[:, None]), right / ranks, 0.0)
    figures = {f"r{k}": hit[:, :k].any(axis=1).astype(float) for k in CUTOFFS}
    figures["r_precision"] = right[np.arange(queries), np.minimum(count, top) - 1] / count
    figures["map_at_r"] = counted.sum(axis=1) / count
    ideal = np.zeros((queries, max(CUTOFFS)))
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    best = rank < max(CUTOFFS)
    ideal[query[best], rank[best]] = grades[best]
    for k in CUTOFFS:
        figures[f"ndcg_{k}"] = _discounted(gain[:, :k]) / _discounted(ideal[:, :k])
    return figures


def _discounted(gain: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(gain @ (1.0 / np.log2(np.arange(2, gain.shape[1] + 2))))
