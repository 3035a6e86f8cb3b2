"""An index for millions of rows: faiss's HNSW graph gives candidates, which are scored exactly.

Malkov & Yashunin 2020 (hierarchical navigable small world graphs). Hits have the scores and the
order of the exact search; the graph may miss a nearer row, which recall@10 measures.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.hashing import sha256_of_file
from pipeline.packed import PackedTexts, TextIndex
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.search import (
    Gallery,
    Hits,
    RowNumbers,
    SearchError,
    SideName,
    Vectors,
    best_of,
    nearest,
    require_comparable,
)
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.retrieval.stored_graph import DamagedGraph, StoredGraph, read_graph

SIMILARITIES_INDEXED = ("cosine", "euclidean")
"""Their order is that of a Euclidean distance, by which the graph is built."""

# Neighbours of a row in the graph, and the rows kept in view while neighbours or hits are sought.
LINKS, WIDTH_OF_BUILDING, WIDTH_OF_SEARCH = 32, 40, 128

EXACT_SHARE = 0.1
"""Below this share of a gallery, an exact search of the subset is the faster one."""

MOST_GONE = 0.2
"""Share of nodes without a row beyond which a graph is rebuilt."""

_SAMPLE = 100  # queries that recall is measured with
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class ApproximateIndex:
    """One side of an embedding file with its graph.

    Attributes
    ----------
    gallery : what is searched.
    graph : faiss's IndexHNSWFlat of its rows, and of earlier ones.
    rows : (nodes,) int64, the row of each node of the graph, -1 of one that is gone; None: nodes
        are the rows.
    """

    gallery: Gallery
    graph: Any
    rows: RowNumbers | None = None

    def nearest(
        self, queries: Vectors, asking: SideName, top: int, among: RowNumbers | None = None
    ) -> Hits:
        """Return the rows that the graph leads to, scored and ordered as `search.nearest` does.

        Of a subset, `among`, as many more candidates are taken as it is smaller than the gallery.
        One below `EXACT_SHARE`, and a query for which the graph leads to fewer than `top` rows, are
        searched exactly: so there are always `top` hits, or all rows of a smaller subset.

        Raises
        ------
        SearchError, EmbeddingsError
            As `search.nearest`.
        """
        gallery = self.gallery
        require_comparable(gallery, queries, asking)
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
        for query, found in enumerate(candidates):
            found = found[found >= 0]
            rows, asked = found[allowed[found]][:width], queries[query : query + 1]
            if len(rows) < top:
                exact = nearest(gallery, asked, asking, top, among=among)
                hits.rows[query], hits.scores[query] = exact.rows[0], exact.scores[0]
                continue
            hits.rows[query], hits.scores[query] = best_of(gallery, asked, rows, top)
        return hits

    def candidates(
        self, queries: Vectors, number: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return the rows that the graph leads to from each query, the nearest first.

        Parameters
        ----------
        queries : (queries, dim) float32, as the gallery's rows.
        number : how many are wanted of each query, at least 1.

        Returns
        -------
        distances : (queries, k) float32, squared Euclidean ones of prepared rows; k is `number`, or
            the rows of a smaller gallery, and more where rows are gone.
        rows : (queries, k) int64 row numbers of the gallery; -1 where the graph leads to fewer, and
            for a node whose row is gone.
        """
        nodes = len(self.gallery.rows) if self.rows is None else len(self.rows)
        # As many more as there are nodes whose row is gone.
        number = min(math.ceil(number * nodes / len(self.gallery.rows)), nodes)
        distances, found = self.graph.search(
            _points(queries, self.gallery.similarity),
            number,
            params=_faiss().SearchParametersHNSW(efSearch=max(WIDTH_OF_SEARCH, number)),
        )
        if self.rows is not None:
            found = np.where(found < 0, -1, self.rows[found])
        return distances, found


def build_index(gallery: Gallery) -> ApproximateIndex:
    """Build the graph, on one core: so the same rows give the same graph.

    Raises
    ------
    SearchError
        faiss is not installed, or the similarity has no such graph.
    """
    faiss = _faiss()
    _require_indexed(gallery)
    graph = faiss.IndexHNSWFlat(gallery.rows.shape[1], LINKS)
    _add(graph, gallery, np.arange(len(gallery.rows)))
    return ApproximateIndex(gallery, graph)


def _add(graph: Any, gallery: Gallery, rows: RowNumbers) -> None:
    """Add rows to a graph, on one core."""
    faiss = _faiss()
    graph.hnsw.efConstruction = WIDTH_OF_BUILDING
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
    """Read, extend or make the index of an embedding file, next to it in `<file>.index/`.

    An index of an earlier file is extended by the rows that are new or changed. Nodes of rows that
    are gone still lead to others; with more of them than `MOST_GONE` the index is rebuilt.

    Parameters
    ----------
    path, embeddings : the file, and its contents.
    side : which side is searched.
    log : receives a line before an index is made or extended, and one with its recall.

    Raises
    ------
    SearchError
        As `build_index`.
    """
    faiss = _faiss()
    gallery = Gallery.of(embeddings, side)
    _require_indexed(gallery)
    file = path.with_name(f"{path.name}.index") / f"{side}.safetensors"
    source = {
        "similarity": gallery.similarity,
        "links": LINKS,
        "width_of_building": WIDTH_OF_BUILDING,
        "software": f"faiss {faiss.__version__}",
    }
    embedded, stored = sha256_of_file(path), None
    try:
        stored = read_graph(file, LINKS)
    except DamagedGraph as error:
        log(f"the index is damaged and rebuilt: {error}")
    if stored is not None and (
        source != {name: stored.about.get(name) for name in source}
        or stored.points.shape[1] != gallery.rows.shape[1]
    ):
        stored = None
    rows = None if stored is None else _rows_of_nodes(gallery, stored)
    if stored is None or rows is None:
        log(f"an index of {len(gallery.ids)} {side} is made in {file.parent}, on one core")
        index, ids, rows = build_index(gallery), gallery.ids, np.arange(len(gallery.ids))
    else:
        new = np.setdiff1d(np.arange(len(gallery.ids)), rows)
        index = ApproximateIndex(gallery, stored.graph(faiss, LINKS), rows)
        if stored.about.get("embeddings_sha256") == embedded:
            return _with_recall(index, stored.about["recall_at_10"], log)
        gone = int((rows < 0).sum())
        log(f"the index of {side} in {file.parent}: {len(new)} rows are added, {gone} are gone")
        _add(index.graph, gallery, new)
        ids = PackedTexts(chain(stored.ids, (gallery.ids[row] for row in new.tolist())))
        rows = np.concatenate([rows, new])
    index = ApproximateIndex(gallery, index.graph, rows)
    recall = recall_of(index, embeddings)
    about = {**source, "embeddings_sha256": embedded, "recall_at_10": recall}
    StoredGraph.of(faiss, index.graph, about, ids, rows).write(file)
    return _with_recall(index, recall, log)


def _rows_of_nodes(gallery: Gallery, stored: StoredGraph) -> RowNumbers | None:
    """Return the row of each node of a graph, -1 if it is gone or has changed.

    None where more than `MOST_GONE` of the nodes have none.
    """
    rows = TextIndex(gallery.ids).rows_of(stored.ids, len(stored.ids))
    rows[stored.rows < 0] = -1  # the row had changed before, and has another node
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        here = np.flatnonzero(some >= 0)
        points = _points(gallery.rows[some[here]], gallery.similarity)
        some[here[(points != stored.points[start + here]).any(axis=1)]] = -1
    return None if (rows < 0).mean() > MOST_GONE else rows


def _with_recall(
    index: ApproximateIndex, recall: float, log: Callable[[str], None]
) -> ApproximateIndex:
    log(f"approximate: recall@10 {recall:.3f} beside the exact search, of {_SAMPLE} queries or all")
    return index


def recall_of(index: ApproximateIndex, embeddings: Embeddings) -> float:
    """Return recall@10: the share of the exact ten nearest that the index finds.

    The queries are rows of the other side, or of its own without captions, up to 100 at equal
    distances.
    """
    one_side = not len(embeddings.caption_ids)
    asking: SideName = "images" if one_side or index.gallery.side == "captions" else "captions"
    rows = Gallery.of(embeddings, asking).rows
    queries = rows[:: max(1, len(rows) // _SAMPLE)][:_SAMPLE]
    exact = nearest(index.gallery, queries, asking, 10).rows
    found = index.nearest(queries, asking, 10).rows
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))


def _require_indexed(gallery: Gallery) -> None:
    if gallery.similarity not in SIMILARITIES_INDEXED:
        raise SearchError(
            f"there is no approximate search by the similarity {gallery.similarity}, only by "
            f"{' and '.join(SIMILARITIES_INDEXED)}; search exactly"
        )


def _points(rows: Vectors, similarity: str) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(SIMILARITIES[similarity].prepare(rows), np.float32)


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise SearchError(
            f"an approximate search needs the package faiss-cpu ({error}); pip install "
            "'caption-feature-pipeline[search]', or search exactly"
        ) from error
