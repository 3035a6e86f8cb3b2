"""Images between captions and foils: a naive loop agrees, and ties count half."""

import numpy as np
import pytest

from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.studies.probes.robustness import robustness


@pytest.mark.parametrize("similarity", ["cosine", "euclidean", "order", "scan-i2t-avg"])
def test_a_naive_loop_agrees(similarity: str) -> None:
    rng = np.random.default_rng(0)
    parts = (3,) if SIMILARITIES[similarity].sets else ()
    image_of = np.array([0, 0, 1, 2, 2, 4])
    images = rng.normal(size=(5, *parts, 8)).astype(np.float32)
    noise = rng.normal(size=(6, *parts, 8)).astype(np.float32)
    captions = images[image_of] + 0.9 * noise
    of_foil = np.array([0, 2, 3, 3, 5])
    foils = captions[of_foil] + rng.normal(size=(5, *parts, 8)).astype(np.float32)
    found = robustness(images, captions, image_of, foils, of_foil, similarity)

    named = SIMILARITIES[similarity]

    def score(image: int, row: np.ndarray) -> float:
        one = named.prepare(images[image : image + 1])
        return float(named.between(one, named.prepare(row[None]))[0, 0])

    right = [
        score(image_of[c], captions[c]) > score(image_of[c], f)
        for c, f in zip(of_foil, foils, strict=True)
    ]
    firsts, with_foils = [], []
    for image in (0, 1, 2, 4):
        to = [score(image, row) for row in captions]
        first = image_of[int(np.argmax(to))] == image
        firsts.append(first)
        with_foils.append(first and max(to) > max(score(image, f) for f in foils))
    assert found.pairs == 5
    assert (found.right, found.ties) == (100 * np.mean(right), 0)
    assert found.r1 == 100 * np.mean(firsts)
    assert found.r1_with_foils == 100 * np.mean(with_foils)


def test_foils_that_are_the_same_but_for_rounding_are_ties() -> None:
    rng = np.random.default_rng(0)
    captions = rng.normal(size=(10, 50)).astype(np.float32)
    of = np.arange(10)
    foils = captions * np.float32(1 + 1e-7) + np.float32(1e-8)
    found = robustness(captions, captions, of, foils, of, "cosine")
    assert (found.right, found.ties, found.r1, found.r1_with_foils) == (50, 100, 100, 0)


def test_one_image_alone_is_found() -> None:
    image = np.ones((1, 4), np.float32)
    found = robustness(image, image, np.array([0]), -image, np.array([0]), "cosine")
    assert (found.right, found.r1, found.r1_with_foils) == (100, 100, 100)
