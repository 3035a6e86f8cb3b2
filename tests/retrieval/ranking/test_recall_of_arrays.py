"""Recall over plain arrays: against loops over the whole matrix, and what is refused."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import COUNTS, METRICS, SMALL_COLUMNS
from pipeline.retrieval.ranking.recall_of_arrays import recall
from pipeline.retrieval.similarity import SIMILARITIES
from tests.retrieval.factories import SETS, naive_table

COUNTS_OF_IMAGES = [3, 1, 7, 5, 2, 1, 6, 5, 4, 1, 1, 2]

Arrays = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]


def drawn(similarity: str, integers: bool = False) -> Arrays:
    """Images with 1 to 7 captions in any order; integer coordinates give many ties."""
    rng = np.random.default_rng(0)
    image_of_caption = rng.permutation(
        np.repeat(np.arange(len(COUNTS_OF_IMAGES)), COUNTS_OF_IMAGES)
    )
    rest = (3, 4) if similarity in SETS else (4,)

    def points(count: int) -> npt.NDArray[np.float32]:
        if integers:
            return rng.integers(-1, 2, (count, *rest)).astype(np.float32)
        return rng.standard_normal((count, *rest)).astype(np.float32)

    return points(len(COUNTS_OF_IMAGES)), points(len(image_of_caption)), image_of_caption


@pytest.mark.parametrize("captions_per_image", [1, 5, None])
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("similarity", list(SIMILARITIES))
def test_figures_are_those_of_naive_loops(
    similarity: str, integers: bool, captions_per_image: int | None
) -> None:
    """Captions count, and stand among equal ones, in the order of the rows."""
    images, captions, image_of_caption = drawn(similarity, integers)
    found = recall(
        images, captions, image_of_caption, similarity=similarity,
        captions_per_image=captions_per_image,
    )  # fmt: skip
    owners = image_of_caption.tolist()
    named = [f"{row:02d}#{owners[:row].count(image)}" for row, image in enumerate(owners)]
    ids = [f"{k:02d}" for k in range(len(images))]
    e = Embeddings(ids, images, named, [ids[image] for image in owners], captions, similarity, {})
    numbers = None if captions_per_image is None else range(captions_per_image)
    expected = naive_table(e, ids, numbers)
    expected = {name: expected[name] for name in (*METRICS, *COUNTS)}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert list(found) == [*expected, *SMALL_COLUMNS]


def test_a_thousand_images_have_neither_chance_nor_intervals() -> None:
    points, rows = np.eye(1000, dtype=np.float32), np.arange(1000)
    assert list(recall(points, points, rows)) == [*METRICS, *COUNTS]
    assert recall(points[:999], points[:999], rows[:999])["rsum_chance"] < 5


def test_what_numpy_makes_arrays_of_is_taken() -> None:
    images, captions, image_of_caption = drawn("cosine")
    expected = recall(images, captions, image_of_caption)
    rows = image_of_caption.tolist()
    assert recall(images.tolist(), captions.astype(np.float64), rows) == expected
    tensors = [torch.from_numpy(array) for array in (images, captions, image_of_caption)]
    assert recall(*tensors) == expected
    turned = recall(images[::-1], captions, len(images) - 1 - image_of_caption)
    assert turned["rsum"] == expected["rsum"]
    assert recall([[1, 0]], [[0, 1]], [0])["rsum"] == 600  # one of each


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": [1.0, 2.0]}, r"images is float64 of shape \(2,\), expected .* \(1, dim\)"),
        ({"images": [["a", "b"]] * 3}, "expected real numbers"),
        ({"images": [[1.0, 0.0], [1.0]]}, "images is not an array .* pass a numpy array"),
        ({"images": np.empty((0, 2))}, "at least one row"),
        ({"captions": [1.0, 2.0]}, r"^captions is float64 of shape \(2,\)"),
        ({"captions": np.zeros((4, 3))}, "2 dimensions and captions 3; .* one head"),
        ({"captions": np.zeros((4, 2, 2))}, r"expected float32 of shape \(rows, dim\)"),
        ({"captions": [[0, 1], [1, 1], [np.nan, 0], [0, 0]]}, r"1 row has NaN .*\['2'\].*remove"),
        ({"captions": [[0, 1], [1, 1], [1e300, 0], [0, 0]]}, "1 row has NaN or infinite"),
        ({"images": np.eye(3, 2) * 1e-50}, "images has a row of numbers too small for float32"),
        ({"image_of_caption": [[0], [1, 2]]}, "^image_of_caption is not an array"),
        ({"image_of_caption": [0, 1, 2]}, r"shape \(3,\), expected integers of shape \(4,\)"),
        ({"image_of_caption": [0.0, 1.0, 2.0, 2.0]}, "is float64 .* expected integers"),
        ({"image_of_caption": [0, 1, 2, 3]}, "1 captions name rows .* rows are 0 to 2"),
        ({"image_of_caption": [0, -1, 2, 1]}, "first caption 1, row -1"),
        ({"captions": np.ma.ones((4, 2))}, "captions is a masked array; fill it"),
        ({"similarity": ["cosine"]}, "is not known; expected one of cosine"),
        ({"captions_per_image": "5"}, "captions_per_image is '5'; use at least 1"),
        ({"similarity": "cosin"}, "'cosin' is not known; expected one of cosine"),
        ({"captions_per_image": 0}, "at least 1, or None to count all"),
    ],
)
def test_wrong_arguments_are_refused_with_a_remedy(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "images": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
        "captions": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]],
        "image_of_caption": [0, 1, 2, 2],
    }
    assert recall(**good)["num_captions"] == 4
    with pytest.raises(EmbeddingsError, match=message):
        recall(**(good | change))
