"""Exact search against a plain sort, and composition on made vectors."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.retrieval import EmbeddingsError, search
from pipeline.retrieval.composition import around_the_mean, compose, require_composable
from pipeline.retrieval.search import Gallery, SideName, nearest
from pipeline.retrieval.similarity import SIMILARITIES
from tests.retrieval.factories import vectors

Array = npt.NDArray[np.float32]


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
def test_one_side_is_searched_by_itself_where_that_means_something(similarity: str) -> None:
    gallery = gallery_of(11, "captions", similarity)
    if similarity not in ("cosine", "euclidean", "dot"):
        with pytest.raises(EmbeddingsError, match="compares an image with a caption"):
            nearest(gallery, gallery.rows, "captions", 1)
        return
    hits = nearest(gallery, gallery.rows[:3], "captions", 11)
    other = nearest(replace(gallery, side="images"), gallery.rows[:3], "captions", 11)
    np.testing.assert_array_equal(hits.rows, other.rows)
    if similarity != "dot":
        assert hits.rows[:, 0].tolist() == [0, 1, 2]


def test_no_query_one_row_and_what_has_no_similarity() -> None:
    one = gallery_of(1, "images", "cosine")
    assert nearest(one, np.empty((0, 7), np.float32), "captions", 3).rows.shape == (0, 1)
    assert nearest(one, one.rows, "captions", 3).scores.tolist() == [[1.0]]
    gallery = gallery_of(3, "images", "cosine")
    with pytest.raises(EmbeddingsError, match="embed both with one head"):
        nearest(gallery, np.ones((1, 8), np.float32), "captions", 1)
    for size, message in ((1e30, "not a finite float32"), (1e-30, "0 as a float32 number")):
        rows = np.full((3, 7), size, np.float32)
        with pytest.raises(EmbeddingsError, match=message):
            nearest(replace(gallery, similarity="dot", rows=rows), rows, "captions", 1)


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
