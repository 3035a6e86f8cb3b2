"""Cosines corrected by the nearest rows of a reference split, against loops."""

import numpy as np
import pytest

from pipeline.retrieval.csls import NEIGHBOURS, Reference, as_queries
from pipeline.retrieval.search import SideName


def rows(number: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(number, 6)).astype(np.float32)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    wide, other = a.astype(float), b.astype(float)
    return float(wide @ other / np.sqrt((wide @ wide) * (other @ other)))


@pytest.mark.parametrize(("images", "captions"), [(30, 60), (4, 20), (1, 1)])
def test_products_are_cosines_less_those_with_the_nearest_of_the_reference(
    images: int, captions: int
) -> None:
    reference = {"images": rows(images, 0), "captions": rows(captions, 1)}
    given: dict[SideName, np.ndarray] = {"images": 3 * rows(5, 2), "captions": rows(7, 3)}
    far = Reference(**reference)
    found = {side: far.extended(given[side], side) for side in given}
    expected = np.empty((5, 7))
    for i, image in enumerate(given["images"]):
        for c, caption in enumerate(given["captions"]):
            r_image = sorted(cosine(image, other) for other in reference["captions"])
            r_caption = sorted(cosine(caption, other) for other in reference["images"])
            r = [sum(of[-NEIGHBOURS:]) / len(of[-NEIGHBOURS:]) for of in (r_image, r_caption)]
            expected[i, c] = cosine(image, caption) - sum(r) / 2
    np.testing.assert_allclose(found["images"] @ found["captions"].T, expected, atol=1e-6)
    # A query orders the other side in the same way, and its own side by cosine.
    asked = as_queries(given["images"], "images")
    others = asked @ found["captions"].T - expected
    np.testing.assert_allclose(others, np.broadcast_to(others[:, :1], others.shape), atol=1e-6)
    cosines = [[cosine(a, b) for b in given["images"]] for a in given["images"]]
    np.testing.assert_allclose(asked @ found["images"].T - 1, cosines, atol=1e-6)


def test_a_row_depends_on_no_other_row() -> None:
    reference, images = Reference(rows(20, 0), rows(40, 1)), rows(9, 2)
    whole = reference.extended(images, "images")
    np.testing.assert_array_equal(reference.extended(images[4:5], "images"), whole[4:5])
    images[0] = 0
    assert reference.extended(images, "images")[0].tolist() == [0] * 7 + [1]
