"""Exact search against a plain sort, composition on made vectors, the index beside exact search."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.retrieval import EmbeddingsError, approximate, search
from pipeline.retrieval.approximate import open_index
from pipeline.retrieval.composition import around_the_mean, compose, require_composable
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.search import SYMMETRIC, Gallery, SideName, nearest
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.retrieval.stored_graph import read_graph
from pipeline.store.errors import MissingPackage
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors

Array = npt.NDArray[np.float32]


def vectors(rows: int, similarity: str, seed: int, ties: bool = False) -> Array:
    """Return vectors, or sets with absent parts; ties are small integers, or repeated sets."""
    rng = np.random.default_rng(seed)
    if not SIMILARITIES[similarity].sets:
        made = rng.integers(-1, 2, (rows, 7)) if ties else rng.standard_normal((rows, 7))
        return made.astype(np.float32)
    made = rng.standard_normal((rows, 4, 7))
    made[np.arange(4) < rng.integers(0, 4, (rows, 1))] = 0.0
    if ties:
        made = made[rng.integers(0, max(1, rows // 3), rows)]
    return made.astype(np.float32)


def gallery_of(rows: int, side: SideName, similarity: str, ties: bool = False) -> Gallery:
    ids = tuple(f"id{k}" for k in np.random.default_rng(5).permutation(rows))
    return Gallery(side, ids, vectors(rows, similarity, 1, ties), similarity)


def plain(gallery: Gallery, queries: Array, top: int) -> list[list[tuple[str, float]]]:
    """Score one pair at a time, then sort by score and id."""
    s = SIMILARITIES[gallery.similarity]
    answers = []
    for query in queries:
        scored = []
        for row_id, row in zip(gallery.ids, gallery.rows, strict=True):
            pair = (row, query) if gallery.side == "images" else (query, row)
            image, caption = (s.prepare(x[None]) for x in pair)
            scored.append((row_id, float(np.float32(s.between(image, caption)[0, 0]))))
        answers.append(sorted(scored, key=lambda hit: (-hit[1], hit[0]))[:top])
    return answers


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("side", ["images", "captions"])
@pytest.mark.parametrize("ties", [False, True])
def test_exact_search_equals_a_plain_sort(
    similarity: str, side: SideName, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery = gallery_of(23, side, similarity, ties)
    queries = vectors(5, similarity, 2, ties)
    asking: SideName = "captions" if side == "images" else "images"
    for top, block_elements, at_once in ((4, 1 << 22, 256), (1, 1, 1), (7, 65, 2), (99, 300, 3)):
        monkeypatch.setattr(search, "_QUERIES_AT_ONCE", at_once)
        hits = nearest(gallery, queries, asking, top, block_elements)
        expected = plain(gallery, queries, top)
        assert hits.rows.shape == (5, min(top, 23))
        assert [[gallery.ids[row] for row in found] for found in hits.rows] == [
            [item for item, _ in answer] for answer in expected
        ]
        np.testing.assert_allclose(
            hits.scores, [[score for _, score in a] for a in expected], rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_equal_rows_stand_in_the_order_of_their_ids(similarity: str) -> None:
    gallery = gallery_of(50, "images", similarity)
    gallery.rows[:] = gallery.rows[3]
    hits = nearest(gallery, vectors(2, similarity, 4), "captions", 9, block_elements=40)
    assert [gallery.ids[row] for row in hits.rows[0]] == sorted(gallery.ids)[:9]


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_one_side_is_searched_by_itself_where_that_means_something(similarity: str) -> None:
    gallery = gallery_of(11, "captions", similarity)
    if similarity not in SYMMETRIC:
        with pytest.raises(EmbeddingsError, match="compares an image with a caption"):
            nearest(gallery, gallery.rows, "captions", 1)
        return
    hits = nearest(gallery, gallery.rows[:3], "captions", 11)
    other = nearest(replace(gallery, side="images"), gallery.rows[:3], "captions", 11)
    np.testing.assert_array_equal(hits.rows, other.rows)
    if similarity != "dot":
        assert hits.rows[:, 0].tolist() == [0, 1, 2]


def test_no_query_and_one_row() -> None:
    gallery = gallery_of(1, "images", "cosine")
    assert nearest(gallery, np.empty((0, 7), np.float32), "captions", 3).rows.shape == (0, 1)
    assert nearest(gallery, gallery.rows, "captions", 3).scores.tolist() == [[1.0]]


def test_what_has_no_similarity_is_refused() -> None:
    gallery = gallery_of(3, "images", "cosine")
    with pytest.raises(EmbeddingsError, match="embed both with one head"):
        nearest(gallery, np.ones((1, 8), np.float32), "captions", 1)
    large = np.full((3, 7), 1e30, np.float32)
    with pytest.raises(EmbeddingsError, match="not a finite float32"):
        nearest(replace(gallery, similarity="dot", rows=large), large, "captions", 1)


BASIS: list[Array] = list(np.eye(4, dtype=np.float32))


def unit(*numbers: float) -> Array:
    row = np.array(numbers, np.float32)
    return row / np.linalg.norm(row)


def test_a_word_is_taken_away_and_another_put_in_its_place() -> None:
    """Made as the paper supposes: an image is the sum of the words that describe it."""
    blue, red, car, dog = BASIS
    images = np.stack([blue + car, red + car, blue + dog, red + dog])
    gallery = Gallery("images", ("blue car", "red car", "blue dog", "red dog"), images, "cosine")
    # Lengths of the inputs play no part.
    query = compose(images[0] * 7, blue[None] * 3, red[None] * np.float32(0.2))
    np.testing.assert_allclose(query, unit(1, 0, 1, 0) - blue + red, rtol=1e-6)
    assert gallery.ids[nearest(gallery, query[None], "images", 1).rows[0, 0]] == "red car"
    both = compose(images[0], np.stack([blue, car]), np.stack([red, dog]))
    assert gallery.ids[nearest(gallery, both[None], "images", 1).rows[0, 0]] == "red dog"
    none = np.empty((0, 4), np.float32)
    np.testing.assert_allclose(compose(images[0], none, none), unit(1, 0, 1, 0), rtol=1e-6)
    # Several images with the same words, and vectors of their own lengths.
    several = compose(images[:3] * 7, blue[None], red[None])
    for row, image in zip(several, images, strict=False):
        np.testing.assert_array_equal(row, compose(image, blue[None], red[None]))
    raw = compose(images[0] * 7, blue[None] * 3, red[None] * 2, unit=False)
    np.testing.assert_array_equal(raw, [4, 2, 7, 0])


def test_compositions_without_a_direction_are_refused() -> None:
    blue = BASIS[0][None]
    zero, none = np.zeros_like(blue), blue[:0]
    with pytest.raises(EmbeddingsError, match="is the zero vector"):
        compose(blue[0], zero, none)
    with pytest.raises(EmbeddingsError, match="cancel"):
        compose(blue[0], blue * 2, none)
    with pytest.raises(EmbeddingsError, match="cancel"):
        compose(blue[0] * 2e-9, blue * np.float32(2e-9), none, unit=False)
    with pytest.raises(
        EmbeddingsError, match="of the image and of word 1 of those subtracted is the"
    ):
        compose(np.zeros((2, 4), np.float32), zero, none)
    for similarity in SIMILARITIES:
        if similarity != "cosine":
            with pytest.raises(EmbeddingsError, match=similarity):
                require_composable(similarity)


def test_re_sorting_puts_the_one_that_stands_apart_last() -> None:
    rows = np.stack([unit(0, 0, 1), unit(1, 0.1, 0), unit(1, -0.1, 0), unit(1, 0, 0) * 9])
    order = around_the_mean(rows)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    mean = sum(units) / 4
    far = [sum((a - b) ** 2 for a, b in zip(u, mean, strict=True)) for u in units]
    assert order.tolist() == [3, 1, 2, 0]
    assert far[3] < far[1] <= far[0]
    # Equal rows, a zero vector and a single one.
    assert around_the_mean(np.stack([rows[1]] * 5)).tolist() == [0, 1, 2, 3, 4]
    assert around_the_mean(np.stack([rows[0] * 0, rows[1]])).tolist() == [0, 1]
    assert around_the_mean(rows[:1]).tolist() == [0]


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
    pytest.importorskip("faiss", reason="needs the extra search")
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
    pytest.importorskip("faiss", reason="needs the extra search")
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
    pytest.importorskip("faiss", reason="needs the extra search")
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
    pytest.importorskip("faiss", reason="needs the extra search")
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
    pytest.importorskip("faiss", reason="needs the extra search")
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
    pytest.importorskip("faiss", reason="needs the extra search")
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
