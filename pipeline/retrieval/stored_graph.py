"""File of an approximate index: plain arrays, validated before faiss traverses them.

faiss's own reader trusts the lengths and neighbours in a file. Here the arrays are in a safetensors
file, and every neighbour is checked to exist at its level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.store.own_files import reading
from pipeline.store.packed import PackedTexts
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors

_KEY = "graph"
_MOST_LEVELS = 64

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StoredGraph:
    """A graph with the identity of its nodes."""

    about: dict[str, Any]  # what it belongs to, as JSON values
    ids: PackedTexts  # of the nodes
    rows: Numbers  # (nodes,), row of each node in that file; -1: deleted, kept for navigation
    points: npt.NDArray[np.float32]  # (nodes, dim)
    levels: npt.NDArray[np.int32]  # (nodes,), number of levels of each node, at least 1
    # For each node 2 * `links` node numbers, then `links` for each further level; padded with
    # -1.
    neighbors: npt.NDArray[np.int32]
    entry: int  # start node of a search

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        texts = [text.encode() for text in self.ids]
        arrays: dict[str, npt.NDArray[Any]] = {
            "ids": np.frombuffer(b"".join(texts), np.uint8),
            "id_lengths": np.array([len(text) for text in texts], np.int64),
            "rows": self.rows,
            "points": self.points,
            "levels": self.levels,
            "neighbors": self.neighbors,
        }
        write_tensors(path, arrays, _KEY, {**self.about, "entry": self.entry})

    @classmethod
    def of(
        cls, faiss: Any, graph: Any, about: dict[str, Any], ids: Sequence[str], rows: Numbers
    ) -> "StoredGraph":
        """Return faiss's IndexHNSWFlat as arrays."""
        storage = faiss.downcast_index(graph.storage)
        points = faiss.rev_swig_ptr(storage.get_xb(), graph.ntotal * graph.d)
        levels, neighbors = (
            faiss.vector_to_array(part) for part in (graph.hnsw.levels, graph.hnsw.neighbors)
        )
        packed = ids if isinstance(ids, PackedTexts) else PackedTexts(ids)
        return cls(
            about, packed, rows, points.reshape(graph.ntotal, graph.d), levels, neighbors,
            int(graph.hnsw.entry_point),
        )  # fmt: skip

    def graph(self, faiss: Any, links: int) -> Any:
        """Return faiss's IndexHNSWFlat."""
        index = faiss.IndexHNSWFlat(self.points.shape[1], links)
        faiss.downcast_index(index.storage).add(self.points)
        index.ntotal = len(self.points)
        hnsw = index.hnsw
        faiss.copy_array_to_vector(self.levels, hnsw.levels)
        faiss.copy_array_to_vector(_offsets(self.levels, links).astype(np.uint64), hnsw.offsets)
        faiss.copy_array_to_vector(self.neighbors, hnsw.neighbors)
        hnsw.entry_point, hnsw.max_level = self.entry, int(self.levels.max()) - 1
        return index


def read_graph(path: Path, links: int) -> StoredGraph | None:
    """Read a graph of `links` links per node and level; return None if the file does not exist."""
    if not path.is_file():
        return None
    names = ("ids", "id_lengths", "rows", "points", "levels", "neighbors")
    kinds = (np.uint8, np.int64, np.int64, np.float32, np.int32, np.int32)
    with reading(path, "a graph of neighbours", "delete it: it is built again", EmbeddingsError):
        about = read_metadata(path, _KEY)
        tensors = read_tensors(path, names)
        entry = int(about.pop("entry"))
        for name, kind in zip(names, kinds, strict=True):
            if tensors[name].dtype != kind or tensors[name].ndim != (2 if name == "points" else 1):
                raise ValueError(f"{name} is {tensors[name].dtype} {tensors[name].shape}")
        lengths, data = tensors.pop("id_lengths"), tensors.pop("ids").tobytes()
        ends = np.cumsum(lengths).tolist()
        if len(lengths) and (lengths.min() < 0 or ends[-1] != len(data)):
            raise ValueError("the lengths of the ids do not match their text")
        pairs = zip([0, *ends], ends, strict=False)
        stored = StoredGraph(
            about, PackedTexts(data[a:b].decode() for a, b in pairs), **tensors, entry=entry
        )
        _check(stored, links)
        return stored


def _check(stored: StoredGraph, links: int) -> None:
    """Raise ValueError unless faiss can traverse the graph without leaving its arrays."""
    nodes, levels, near = len(stored.ids), stored.levels, stored.neighbors
    if not nodes or {nodes} != {len(stored.rows), len(stored.points), len(levels)}:
        raise ValueError("the arrays have different numbers of nodes")
    if not np.isfinite(stored.points).all():
        raise ValueError("the points are not finite vectors")
    if levels.min() < 1 or levels.max() > _MOST_LEVELS:
        raise ValueError("a node has an impossible level")
    offsets = _offsets(levels, links)
    if len(near) != offsets[-1] or near.min() < -1 or near.max() >= nodes:
        raise ValueError("a neighbour does not exist")
    if not 0 <= stored.entry < nodes or levels[stored.entry] != levels.max():
        raise ValueError("the entry is not at the highest level")
    for level in range(1, int(levels.max())):
        here = np.flatnonzero(levels > level)
        slots = offsets[here][:, None] + (level + 1) * links + np.arange(links)
        others = near[slots]
        if (levels[others[others >= 0]] <= level).any():
            raise ValueError("a neighbour is not at the level of its link")


def _offsets(levels: npt.NDArray[np.int32], links: int) -> Numbers:
    """Return the offset of each node in `neighbors`, and its length, (nodes + 1,)."""
    sizes = (levels.astype(np.int64) + 1) * links
    return np.concatenate([[0], np.cumsum(sizes)])
