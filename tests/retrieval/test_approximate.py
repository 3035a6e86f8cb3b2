"""Approximate search next to exact search; indexes that grow with their file, or are damaged."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.retrieval import EmbeddingsError, approximate
from pipeline.retrieval.approximate import open_index
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.search import Gallery, SideName, nearest
from pipeline.retrieval.stored_graph import read_graph
from pipeline.store.errors import MissingPackage
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors
from tests.retrieval.factories import vectors

pytest.importorskip("faiss", reason="needs the extra search")


def made_file(path: Path, similarity: str, rows: int = 400) -> Embeddings:
    """Write and return embeddings whose images are mostly their own nearest captions."""
    images = vectors(rows, similarity, 7)
    ids = tuple(f"im{k}" for k in np.random.default_rng(8).permutation(rows))
    captions = images + 0.1 * vectors(rows, similarity, 9)
    made = Embeddings(ids, images, tuple(f"{i}#0" for i in ids), ids, captions, similarity, {})
    write_embeddings(path, made)
    return made


@pytest.mark.parametrize("similarity", approximate.SIMILARITIES_INDEXED)
@pytest.mark.parametrize("side", ["images", "captions"])
def test_the_index_finds_what_the_exact_search_finds(
    similarity: str, side: SideName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_file(tmp_path / "a.h5", similarity)
    made.image_embeddings[5:9] = made.image_embeddings[4]
    write_embeddings(tmp_path / "a.h5", made)
    lines: list[str] = []
    index = open_index(tmp_path / "a.h5", made, side, lines.append)
    queries = vectors(6, similarity, 10)
    queries[0] = made.image_embeddings[4]
    exact = nearest(index.gallery, queries, "images" if side == "captions" else "captions", 12)
    for _ in range(2):
        found = index.nearest(queries, "images" if side == "captions" else "captions", 12)
        np.testing.assert_array_equal(found.rows, exact.rows)
        np.testing.assert_array_equal(found.scores, exact.scores)
        index = open_index(tmp_path / "a.h5", made, side, lines.append)
    assert ["building an index" in line for line in lines] == [True, False, False, False]
    assert "recall@10 1.000" in lines[-1]
    # All rows, more than the graph is asked for as a rule, and fewer candidates than asked for.
    assert sorted(index.nearest(queries, "images", 999).rows[0]) == list(range(400))
    monkeypatch.setattr(index.graph, "search", lambda points, *a, **k: (None, -1 * exact.rows**0))
    np.testing.assert_array_equal(index.nearest(queries, "images", 12).rows, exact.rows)


def test_an_index_belongs_to_its_file(tmp_path: Path) -> None:
    path, lines = tmp_path / "a.h5", list[str]()
    open_index(path, made_file(path, "cosine"), "images", lines.append)
    graph = tmp_path / "a.h5.index" / "images.safetensors"
    first = graph.read_bytes()
    changed = made_file(path, "cosine", 300)
    assert open_index(path, changed, "images", lines.append).graph.ntotal == 300
    assert open_index(path, made_file(path, "cosine"), "images", lines.append).graph.ntotal == 400
    assert graph.read_bytes() == first, "the same rows, the same graph"
    graph.write_bytes(first[:-100])
    open_index(path, made_file(path, "cosine"), "images", lines.append)
    assert graph.read_bytes() == first
    assert [line for line in lines if "is corrupt" in line]
    with pytest.raises(EmbeddingsError, match="only cosine and euclidean"):
        open_index(path, made_file(path, "order"), "images", lines.append)


def test_an_index_grows_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New and changed rows are added, removed ones are not found; few rows left: made again."""
    path, lines = tmp_path / "a.h5", list[str]()
    whole = made_file(path, "cosine")

    def written(rows: np.ndarray) -> Embeddings:
        ids = tuple(whole.image_ids[row] for row in rows)
        images, captions = whole.image_embeddings[rows], whole.caption_embeddings[rows]
        made = Embeddings(ids, images, tuple(f"{i}#0" for i in ids), ids, captions, "cosine", {})
        write_embeddings(path, made)
        return made

    added: list[int] = []
    once = approximate._add

    def counted(graph: Any, gallery: Gallery, rows: np.ndarray) -> None:
        added.append(len(rows))
        once(graph, gallery, rows)

    monkeypatch.setattr(approximate, "_add", counted)
    rng, queries = np.random.default_rng(3), vectors(20, "cosine", 10)
    open_index(path, written(np.arange(300)), "images", lines.append)
    whole.image_embeddings[40] = whole.image_embeddings[7]
    grown = written(rng.permutation(np.arange(30, 350)))
    for _ in range(2):  # extended, then read
        index = open_index(path, grown, "images", lines.append)
        exact = nearest(Gallery.of(grown, "images"), queries, "captions", 12)
        found = index.nearest(queries, "captions", 12)
        np.testing.assert_array_equal(found.rows, exact.rows)
        np.testing.assert_array_equal(found.scores, exact.scores)
    assert sorted(index.nearest(queries[:1], "captions", 999).rows[0]) == list(range(320))
    assert [*added, index.graph.ntotal] == [300, 51, 351]
    assert open_index(path, written(np.arange(40, 200)), "images", lines.append).graph.ntotal == 160
    assert added == [300, 51, 160]


@pytest.mark.parametrize("number", [1, 5, 60, 300])
def test_a_subset_is_ranked_as_if_it_were_all(number: int, tmp_path: Path) -> None:
    """Exactly and by the graph; of distant rows too, which the graph does not lead to."""
    made = made_file(tmp_path / "a.h5", "cosine")
    gallery, queries = Gallery.of(made, "images"), vectors(9, "cosine", 10)
    scores = nearest(gallery, queries[:1], "captions", 400)
    for among in (np.sort(scores.rows[0][-number:]), np.arange(0, 400, 400 // number)[:number]):
        alone = Gallery(
            "images", [gallery.ids[row] for row in among], gallery.rows[among], "cosine"
        )
        expected = nearest(alone, queries, "captions", 7)
        for found in (
            nearest(gallery, queries, "captions", 7, among=among),
            approximate.build_index(gallery).nearest(queries, "captions", 7, among),
        ):
            np.testing.assert_array_equal(found.rows, among[expected.rows])
            np.testing.assert_array_equal(found.scores, expected.scores)


def test_images_without_captions_have_an_index(tmp_path: Path) -> None:
    """Its recall is measured with images; a subset without rows has no hits."""
    path, rows, lines = tmp_path / "a.h5", vectors(9, "cosine", 1), list[str]()
    made = Embeddings([*"abcdefghi"], rows, [], [], rows[:0], "cosine", {})
    write_embeddings(path, made)
    index = open_index(path, made, "images", lines.append)
    assert lines[-1].startswith("approximate: recall@10 1.000")
    assert index.nearest(rows[:2], "images", 3).rows[:, 0].tolist() == [0, 1]
    assert index.nearest(rows[:2], "images", 3, np.arange(0)).rows.shape == (2, 0)
    # Fewer dimensions, as of `embed --dim`: another index, which is not damaged.
    shorter = replace(made, image_embeddings=rows[:, :3], caption_embeddings=rows[:0, :3])
    write_embeddings(path, shorter)
    assert open_index(path, shorter, "images", lines.append).graph.d == 3
    assert not [line for line in lines if "damaged" in line]


@pytest.mark.parametrize(
    ("name", "value"),
    [("neighbors", 400), ("levels", 65), ("levels", 1), ("points", np.nan), ("id_lengths", -1)],
)
def test_a_graph_that_leads_out_of_its_arrays_is_not_walked(
    name: str, value: float, tmp_path: Path
) -> None:
    path, lines = tmp_path / "a.h5", list[str]()
    made = made_file(path, "cosine")
    open_index(path, made, "images", lines.append)
    file = tmp_path / "a.h5.index" / "images.safetensors"
    names = ("ids", "id_lengths", "rows", "points", "levels", "neighbors")
    arrays, about = read_tensors(file, names), read_metadata(file, "graph")
    arrays[name].reshape(-1)[int(arrays["levels"].argmax())] = value
    write_tensors(file, arrays, "graph", about)
    with pytest.raises(EmbeddingsError):
        read_graph(file, approximate.LINKS)
    open_index(path, made, "images", lines.append)
    assert [line for line in lines if "is corrupt" in line]


def test_without_faiss_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    made = made_file(tmp_path / "a.h5", "cosine")
    with pytest.raises(MissingPackage, match="caption-feature-pipeline\\[search\\]"):
        open_index(tmp_path / "a.h5", made, "images", print)
