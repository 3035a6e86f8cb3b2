"""The map of images: against scikit-learn and naive loops, in any order of the rows; its texts."""

import json
import re
from math import log, sqrt

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from pipeline.retrieval.search import Gallery
from pipeline.store.errors import WrongUsage
from pipeline.studies.embedding_map.make_map import NEIGHBOURS, EmbeddingMap, make_map
from pipeline.studies.embedding_map.plane import placed
from pipeline.studies.embedding_map.typical_words import typical_words
from pipeline.web.pages.map_values import WIDTH, map_values

TOPICS = ("dog", "ship", "tree")
EVIL = "</script><script>alert(1)</script> & \x07\u202e"


def gallery_of(images: int, similarity: str = "cosine", seed: int = 0) -> Gallery:
    """Return images in three clusters; image k is of cluster k % 3."""
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(3, 12))
    rows = centres[np.arange(images) % 3] + rng.normal(size=(images, 12))
    ids = [f"{k:03d}.jpg" for k in range(images)]
    return Gallery("images", ids, rows.astype(np.float32), similarity)


def captions_of(image: str) -> list[str]:
    return [f"A {TOPICS[int(image[:3]) % 3]} of the things", "one of the things"]


def made_of(gallery: Gallery, points: int = 2000) -> EmbeddingMap:
    made = make_map(gallery, captions_of, points=points)
    assert made is not None
    return made


@pytest.mark.parametrize("similarity", ["cosine", "euclidean", "order"])
def test_places_and_neighbours_are_those_of_naive_ones(similarity: str) -> None:
    gallery = gallery_of(40, similarity)
    made = made_of(gallery)
    rows = gallery.rows[[gallery.ids.index(image) for image in made.ids]].astype(np.float64)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    seen = rows if similarity == "euclidean" else unit
    oracle = PCA(2).fit(seen)
    expected = oracle.transform(seen)
    signs = np.sign((expected * made.places).sum(axis=0))
    np.testing.assert_allclose(made.places, expected * signs, atol=1e-6)
    assert made.shares is not None
    np.testing.assert_allclose(made.shares, oracle.explained_variance_ratio_, atol=1e-9)
    assert made.similarity == ("cosine" if similarity == "order" else similarity)
    for row in range(40):
        if similarity == "euclidean":
            scores = [-float(((rows[row] - other) ** 2).sum()) for other in rows]
        else:
            scores = [float(unit[row] @ other) for other in unit]
        order = np.argsort([-score for score in scores], kind="stable")
        others = order[order != row][:NEIGHBOURS].tolist()
        assert made.neighbours[row].tolist() == others
        np.testing.assert_allclose(made.scores[row], [scores[k] for k in others], rtol=1e-5)


def test_groups_are_the_clusters_and_have_their_words() -> None:
    made = made_of(gallery_of(30))
    topics = [int(image[:3]) % 3 for image in made.ids]
    assert len(set(zip(topics, made.groups.tolist(), strict=True))) == 3
    for topic, group in zip(topics, made.groups.tolist(), strict=True):
        assert made.words[group] == (TOPICS[topic],)
    sizes = np.bincount(made.groups)
    assert (np.diff(sizes) <= 0).all()


def test_the_order_of_the_rows_changes_nothing() -> None:
    gallery = gallery_of(50)
    order = np.random.default_rng(1).permutation(50)
    other = Gallery("images", [gallery.ids[k] for k in order], gallery.rows[order], "cosine")
    one, again = made_of(gallery, 30), made_of(other, 30)
    assert one.ids == again.ids
    assert one.left_out == 20
    assert one.words == again.words
    for name in ("places", "groups", "neighbours", "scores"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))


@pytest.mark.parametrize("images", [1, 2, 7])
def test_few_images_equal_ones_and_none(images: int) -> None:
    assert make_map(gallery_of(0), captions_of) is None
    made = made_of(gallery_of(images))
    assert made.neighbours.shape == (images, min(images - 1, NEIGHBOURS))
    assert made.groups.tolist() == [0] * images
    assert map_values(made, lambda image: "").points
    equal = Gallery("images", [f"{k}" for k in range(20)], np.ones((20, 3), np.float32), "cosine")
    same = make_map(equal, lambda image: ())
    assert same is not None
    assert same.words == ((),)
    assert all(row not in same.neighbours[row] for row in range(20))
    assert np.isfinite(map_values(same, lambda image: "").points).all()


def test_sets_of_vectors_are_placed_by_their_mean() -> None:
    gallery = gallery_of(20)
    shift = np.random.default_rng(3).normal(size=(20, 1, 12)).astype(np.float32)
    sets = np.stack((gallery.rows, gallery.rows), axis=1) + np.concatenate((shift, -shift), axis=1)
    made = made_of(Gallery("images", gallery.ids, sets.astype(np.float32), "scan-t2i"))
    expected = made_of(gallery)
    np.testing.assert_allclose(made.places, expected.places, atol=1e-5)
    np.testing.assert_array_equal(made.neighbours, expected.neighbours)


def test_tsne_keeps_neighbours_together_and_is_repeated() -> None:
    rows = gallery_of(40).rows
    places, shares = placed(rows, "tsne")
    assert shares is None
    np.testing.assert_array_equal(places, placed(rows, "tsne")[0])
    assert trustworthiness(rows, places, n_neighbors=4) > trustworthiness(
        rows, placed(rows)[0], n_neighbors=4
    )
    assert placed(rows[:3], "tsne")[1] is not None
    with pytest.raises(WrongUsage, match="`projection='umap'` is not one of pca, tsne"):
        placed(rows, "umap")  # type: ignore[arg-type]


def test_typical_words_are_sorted_by_their_log_odds() -> None:
    groups = [
        ["a black dog runs", "dogs run in the snow", "a dog jumps", "a dog barks"] * 20,
        ["a red ship", "the ship in the sea", "a black ship", "ships"] * 20,
    ]
    found = typical_words(groups, 99)

    def score(word: str, own: list[str], rest: list[str]) -> float:
        a, b = (sum(word in text.split() for text in texts) for texts in (own, rest))
        prior = 20 * (a + b) / 160
        odds = [log((n + prior) / (80 + 20 - n - prior)) for n in (a, b)]
        return (odds[0] - odds[1]) / sqrt(1 / (a + prior) + 1 / (b + prior))

    for words, own, rest in zip(found, groups, groups[::-1], strict=True):
        scores = [score(word, own, rest) for word in words]
        assert scores == sorted(scores, reverse=True)
        assert min(scores) > 1.96
    assert [words[0] for words in found] == ["dog", "ship"]
    # Of dog and dogs, and of run and runs, one stands; function words and shared ones do not.
    assert [set(words) for words in found] == [
        {"dog", "barks", "jumps", "run", "snow"}, {"ship", "red", "sea"}
    ]  # fmt: skip
    assert typical_words([["the a of"], []], 3) == [(), ()]


def test_values_fit_the_page_and_hold_no_markup() -> None:
    made = made_of(gallery_of(40))
    values = map_values(made, lambda image: EVIL, ("../images/a.jpg", 7, 6))
    assert all(0 < x < WIDTH and 0 < y < values.height for x, y, _ in values.points)
    assert [group.images for group in values.groups] == np.bincount(made.groups).tolist()
    assert {group.label for group in values.groups} <= {*TOPICS, ""}
    text = str(values.data)
    assert not re.search("[<\x00-\x1f\u202e]", text)
    data = json.loads(text)
    assert data["texts"][0] == r"</script><script>alert(1)</script> & \x07\u202e"
    assert data["near"] == made.neighbours.tolist()
    assert data["sheet"] == ["../images/a.jpg", 7, 6]
    few = map_values(made_of(gallery_of(40), 30), lambda image: "")
    assert "10 more images are left out" in few.note
    assert json.loads(str(few.data))["sheet"] is None


def test_a_map_of_some_images_is_that_of_a_gallery_of_them() -> None:
    gallery = gallery_of(40)
    some = gallery.ids[5:30]
    alone = made_of(Gallery("images", some, gallery.rows[5:30], "cosine"))
    made = make_map(gallery, captions_of, images=some)
    assert made is not None
    assert (made.ids, made.left_out, made.words) == (alone.ids, 0, alone.words)
    np.testing.assert_array_equal(made.places, alone.places)
    assert make_map(gallery, captions_of, images=()) is None
