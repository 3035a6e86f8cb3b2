"""An index for millions of rows: faiss's HNSW graph gives candidates, which are scored exactly.

Malkov & Yashunin 2020 (hierarchical navigable small world graphs). Hits have the scores and the
order of the exact search; the graph may miss a nearer row, which recall@10 measures.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.files import appearing_whole, parse_json, write_json
from pipeline.hashing import sha256_of_file
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.search import (
    Gallery,
    Hits,
    RowNumbers,
    SearchError,
    SideName,
    Vectors,
    nearest,
    require_comparable,
    scores_of,
)
from pipeline.retrieval.similarity import SIMILARITIES

SIMILARITIES_INDEXED = ("cosine", "euclidean")
"""Their order is that of a Euclidean distance, by which the graph is built."""

# Neighbours of a row in the graph, and the rows kept in view while neighbours or hits are sought.
LINKS, WIDTH_OF_BUILDING, WIDTH_OF_SEARCH = 32, 40, 128

EXACT_SHARE = 0.1
"""Below this share of a gallery, an exact search of the subset is the faster one."""

_SAMPLE = 100  # queries that recall is measured with
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class ApproximateIndex:
    """One side of an embedding file with its graph.

    Attributes
    ----------
    gallery : what is searched.
    graph : faiss's IndexHNSWFlat of its rows, in their order.
    """

    gallery: Gallery
    graph: Any

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
        gallery, similarity = self.gallery, SIMILARITIES[self.gallery.similarity]
        require_comparable(gallery, queries, asking)
        rows, share = len(gallery.ids), 1.0
        allowed = np.ones(rows, bool)
        if among is not None:
            allowed[:] = False
            allowed[among] = True
            share = max(len(among), 1) / rows
        top, width = min(top, round(share * rows)), max(WIDTH_OF_SEARCH, 2 * top)
        if share < EXACT_SHARE:
            return nearest(gallery, queries, asking, top, among)
        _, candidates = self.candidates(queries, math.ceil(width / share))
        hits = Hits(
            np.empty((len(queries), top), np.int64), np.empty((len(queries), top), np.float32)
        )
        for query, found in enumerate(candidates):
            found = found[found >= 0]
            some = found[allowed[found]][:width].tolist()
            rows = np.array(sorted(some, key=gallery.ids.__getitem__), np.int64)
            asked = queries[query : query + 1]
            if len(rows) < top:
                exact = nearest(gallery, asked, asking, top, among)
                hits.rows[query], hits.scores[query] = exact.rows[0], exact.scores[0]
                continue
            prepared = similarity.prepare(gallery.rows[rows]), similarity.prepare(asked)
            scores = scores_of(similarity, gallery.side, *prepared)[0]
            best = np.argsort(-scores, kind="stable")[:top]
            hits.rows[query], hits.scores[query] = rows[best], scores[best]
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
            the rows of a smaller gallery.
        rows : (queries, k) int64 row numbers of the gallery; -1 where the graph leads to fewer.
        """
        width = max(WIDTH_OF_SEARCH, number)
        distances, rows = self.graph.search(
            _points(queries, self.gallery.similarity),
            min(number, len(self.gallery.rows)),
            params=_faiss().SearchParametersHNSW(efSearch=width),
        )
        return distances, rows


def build_index(gallery: Gallery) -> ApproximateIndex:
    """Build the graph, on one core: so the same rows give the same graph.

    Raises
    ------
    SearchError
        faiss is not installed, or the similarity has no such graph.
    """
    faiss = _faiss()
    if gallery.similarity not in SIMILARITIES_INDEXED:
        raise SearchError(
            f"there is no approximate search by the similarity {gallery.similarity}, only by "
            f"{' and '.join(SIMILARITIES_INDEXED)}; search exactly"
        )
    graph = faiss.IndexHNSWFlat(gallery.rows.shape[1], LINKS)
    graph.hnsw.efConstruction = WIDTH_OF_BUILDING
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        for start in range(0, len(gallery.rows), _ROWS_AT_ONCE):
            graph.add(_points(gallery.rows[start : start + _ROWS_AT_ONCE], gallery.similarity))
    finally:
        faiss.omp_set_num_threads(threads)
    return ApproximateIndex(gallery, graph)


def open_index(
    path: Path, embeddings: Embeddings, side: SideName, log: Callable[[str], None]
) -> ApproximateIndex:
    """Read the index of an embedding file, or make it, beside the file in `<file>.index/`.

    Parameters
    ----------
    path, embeddings : the file, and its contents.
    side : which side is searched.
    log : takes a line before an index is made, and one with its recall.

    Raises
    ------
    SearchError
        As `build_index`, or the stored index cannot be used.
    """
    faiss = _faiss()
    gallery = Gallery.of(embeddings, side)
    folder = path.with_name(f"{path.name}.index")
    graph_file, metadata_file = folder / f"{side}.faiss", folder / f"{side}.json"
    source = {
        "embeddings_sha256": sha256_of_file(path),
        "similarity": gallery.similarity,
        "links": LINKS,
        "width_of_building": WIDTH_OF_BUILDING,
        "software": f"faiss {faiss.__version__}",
    }
    metadata = _read_metadata(metadata_file)
    if any(metadata.get(name) != value for name, value in source.items()):
        log(f"an index of {len(gallery.ids)} {side} is made in {folder}, on one core")
        index = build_index(gallery)
        with appearing_whole(graph_file) as part:
            faiss.write_index(index.graph, str(part))
        metadata = {
            **source,
            "graph_sha256": sha256_of_file(graph_file),
            "recall_at_10": recall_of(index, embeddings),
        }
        write_json(metadata_file, metadata)
    elif not graph_file.is_file() or sha256_of_file(graph_file) != metadata["graph_sha256"]:
        raise SearchError(
            f"{graph_file} is not the index that {metadata_file} describes; remove {folder}, and "
            "it is made again"
        )
    else:
        index = ApproximateIndex(gallery, faiss.read_index(str(graph_file)))
    log(
        f"approximate: recall@10 {metadata['recall_at_10']:.3f} beside the exact search, of "
        f"{_SAMPLE} queries or all"
    )
    return index


def recall_of(index: ApproximateIndex, embeddings: Embeddings) -> float:
    """Return recall@10: the share of the exact ten nearest that the index finds.

    The queries are rows of the other side, up to 100 at equal distances.
    """
    asking: SideName = "captions" if index.gallery.side == "images" else "images"
    rows = Gallery.of(embeddings, asking).rows
    queries = rows[:: max(1, len(rows) // _SAMPLE)][:_SAMPLE]
    exact = nearest(index.gallery, queries, asking, 10).rows
    found = index.nearest(queries, asking, 10).rows
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))


def _points(rows: Vectors, similarity: str) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(SIMILARITIES[similarity].prepare(rows), np.float32)


def _read_metadata(path: Path) -> dict[str, Any]:
    """Return the record of the index of one side; {} where no index is kept."""
    if not path.is_file():
        return {}
    try:
        return dict(parse_json(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        return {}


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise SearchError(
            f"an approximate search needs the package faiss-cpu ({error}); pip install "
            "'caption-feature-pipeline[search]', or search exactly"
        ) from error
