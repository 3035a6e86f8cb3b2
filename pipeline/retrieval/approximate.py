"""Approximate search in millions of rows: candidates from faiss's HNSW graph, scored exactly.

Malkov & Yashunin 2020 (hierarchical navigable small world graphs). Hits have the scores and the
order of exact search; the graph may miss a nearer row, which recall@10 measures.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.search import Gallery, Hits, SideName, best_of, nearest, require_comparable
from pipeline.retrieval.similarity import SIMILARITIES, Vectors
from pipeline.retrieval.stored_graph import StoredGraph, read_graph
from pipeline.store.extras import require
from pipeline.store.hashing import sha256_of_file
from pipeline.store.packed import PackedTexts, TextIndex
from pipeline.store.shards.row_keys import RowNumbers

SIMILARITIES_INDEXED = ("cosine", "euclidean")
"""Similarities that order like a Euclidean distance, for which the graph is built."""

# Neighbours per row in the graph, and beam widths of construction and search.
LINKS, WIDTH_OF_BUILDING, WIDTH_OF_SEARCH = 32, 40, 128

EXACT_SHARE = 0.1
"""Fraction of a gallery below which exact search of a subset is faster."""

MOST_GONE = 0.2
"""Fraction of deleted nodes above which a graph is rebuilt."""

_SAMPLE = 100  # number of queries for measuring recall
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class ApproximateIndex:
    """One side of an embedding file with its graph."""

    gallery: Gallery
    graph: Any  # faiss's IndexHNSWFlat of its rows, and of earlier ones
    # (nodes,), row of each node, -1 if deleted; None: nodes are the rows
    rows: RowNumbers | None = None

    def nearest(
        self, queries: Vectors, asking: SideName, top: int, among: RowNumbers | None = None
    ) -> Hits:
        """Return the hits of the graph, scored and ordered as by `search.nearest`, always `top`."""
        gallery = self.gallery
        require_comparable(gallery, queries, asking)
        # The smaller a subset, the more candidates contain enough of it; below `EXACT_SHARE` it is
        # searched exactly, which is faster. So is a query with fewer than `top` candidates.
        share, allowed = 1.0, np.ones(len(gallery.ids), bool)
        if among is not None:
            allowed[:] = False
            allowed[among] = True
            share = max(len(among), 1) / len(allowed)
        top, width = min(top, int(allowed.sum())), max(WIDTH_OF_SEARCH, 2 * top)
        if share < EXACT_SHARE or not top:
            return nearest(gallery, queries, asking, top, among=among)
        _, candidates = self.candidates(queries, math.ceil(width / share))
        hits = Hits(
            np.empty((len(queries), top), np.int64), np.empty((len(queries), top), np.float32)
        )
        for query, neighbors in enumerate(candidates):
            neighbors = neighbors[neighbors >= 0]
            rows, query_row = neighbors[allowed[neighbors]][:width], queries[query : query + 1]
            if len(rows) < top:
                exact = nearest(gallery, query_row, asking, top, among=among)
                hits.rows[query], hits.scores[query] = exact.rows[0], exact.scores[0]
                continue
            hits.rows[query], hits.scores[query] = best_of(gallery, query_row, rows, top)
        return hits

    def candidates(
        self, queries: Vectors, number: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return distances and rows (queries, k) of the graph's candidates, nearest first.

        Distances are squared Euclidean ones of prepared rows, float32. A row is -1 for a missing
        candidate and a deleted node, so k may exceed `number`.
        """
        nodes = len(self.gallery.rows) if self.rows is None else len(self.rows)
        # Deleted nodes are among the candidates, so that more of them are needed.
        number = min(math.ceil(number * nodes / len(self.gallery.rows)), nodes)
        distances, neighbors = self.graph.search(
            _points(queries, self.gallery.similarity),
            number,
            params=_faiss().SearchParametersHNSW(efSearch=max(WIDTH_OF_SEARCH, number)),
        )
        if self.rows is not None:
            neighbors = np.where(neighbors < 0, -1, self.rows[neighbors])
        return distances, neighbors


def build_index(gallery: Gallery) -> ApproximateIndex:
    """Build the graph on one core, which is deterministic."""
    faiss = _faiss()
    _require_indexed(gallery)
    graph = faiss.IndexHNSWFlat(gallery.rows.shape[1], LINKS)
    _add(graph, gallery, np.arange(len(gallery.rows)))
    return ApproximateIndex(gallery, graph)


def _add(graph: Any, gallery: Gallery, rows: RowNumbers) -> None:
    """Add rows to a graph on one core."""
    faiss = _faiss()
    graph.hnsw.efConstruction = WIDTH_OF_BUILDING
    # Links depend on the order of insertion, which is that of the rows on one thread only.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = gallery.rows[rows[start : start + _ROWS_AT_ONCE]]
            graph.add(_points(some, gallery.similarity))
    finally:
        faiss.omp_set_num_threads(threads)


def open_index(
    path: Path, embeddings: Embeddings, side: SideName, log: Callable[[str], None]
) -> ApproximateIndex:
    """Load, extend or build the index of an embedding file, next to it in `<file>.index/`."""
    faiss = _faiss()
    gallery = Gallery.of(embeddings, side)
    _require_indexed(gallery)
    file = path.with_name(f"{path.name}.index") / f"{side}.safetensors"
    # An index of other parameters, or of another faiss, may have other links: it is rebuilt.
    source = {
        "similarity": gallery.similarity,
        "links": LINKS,
        "width_of_building": WIDTH_OF_BUILDING,
        "software": f"faiss {faiss.__version__}",
    }
    embedded, stored = sha256_of_file(path), None
    try:
        stored = read_graph(file, LINKS)
    except EmbeddingsError as error:
        log(f"the index is corrupt and rebuilt: {error}")
    if stored is not None and (
        source != {name: stored.about.get(name) for name in source}
        or stored.points.shape[1] != gallery.rows.shape[1]
    ):
        stored = None
    rows = None if stored is None else _rows_of_nodes(gallery, stored)
    if stored is None or rows is None:
        log(f"building an index of {len(gallery.ids)} {side} in {file.parent}, on one core")
        index, ids, rows = build_index(gallery), gallery.ids, np.arange(len(gallery.ids))
    else:
        # Extended by new and changed rows; nodes of deleted rows stay for navigation.
        new = np.setdiff1d(np.arange(len(gallery.ids)), rows)
        index = ApproximateIndex(gallery, stored.graph(faiss, LINKS), rows)
        if stored.about.get("embeddings_sha256") == embedded:
            return _with_recall(index, stored.about["recall_at_10"], log)
        gone = int((rows < 0).sum())
        log(f"index of {side} in {file.parent}: {len(new)} rows are added, {gone} deleted")
        _add(index.graph, gallery, new)
        ids = PackedTexts(chain(stored.ids, (gallery.ids[row] for row in new.tolist())))
        rows = np.concatenate([rows, new])
    index = ApproximateIndex(gallery, index.graph, rows)
    recall = recall_of(index, embeddings)
    about = {**source, "embeddings_sha256": embedded, "recall_at_10": recall}
    StoredGraph.of(faiss, index.graph, about, ids, rows).write(file)
    return _with_recall(index, recall, log)


def _rows_of_nodes(gallery: Gallery, stored: StoredGraph) -> RowNumbers | None:
    """Return the row of each node, -1 if deleted or changed; None if more than `MOST_GONE` are."""
    rows = TextIndex(gallery.ids).rows_of(stored.ids, len(stored.ids))
    rows[stored.rows < 0] = -1  # the row changed earlier and has another node
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        # An id whose vector has changed is a new row; its node stays for navigation.
        some = rows[start : start + _ROWS_AT_ONCE]
        here = np.flatnonzero(some >= 0)
        points = _points(gallery.rows[some[here]], gallery.similarity)
        some[here[(points != stored.points[start + here]).any(axis=1)]] = -1
    return None if (rows < 0).mean() > MOST_GONE else rows


def _with_recall(
    index: ApproximateIndex, recall: float, log: Callable[[str], None]
) -> ApproximateIndex:
    log(f"approximate: recall@10 {recall:.3f} against exact search, on up to {_SAMPLE} queries")
    return index


def recall_of(index: ApproximateIndex, embeddings: Embeddings) -> float:
    """Return recall@10: the fraction of the exact ten nearest rows that the index finds."""
    # Up to `_SAMPLE` equally spaced rows of the other side are the queries; without captions, of
    # the same.
    one_side = not len(embeddings.caption_ids)
    asking: SideName = "images" if one_side or index.gallery.side == "captions" else "captions"
    rows = Gallery.of(embeddings, asking).rows
    queries = rows[:: max(1, len(rows) // _SAMPLE)][:_SAMPLE]
    exact = nearest(index.gallery, queries, asking, 10).rows
    approximate = index.nearest(queries, asking, 10).rows
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, approximate, strict=True)]))


def _require_indexed(gallery: Gallery) -> None:
    if gallery.similarity not in SIMILARITIES_INDEXED:
        raise EmbeddingsError(
            f"approximate search does not support the similarity {gallery.similarity}, only "
            f"{' and '.join(SIMILARITIES_INDEXED)}; use exact search"
        )


def _points(rows: Vectors, similarity: str) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(SIMILARITIES[similarity].prepare(rows), np.float32)


def _faiss() -> Any:
    return require("faiss", "approximate search needs", ", or use exact search")
