"""Recall over plain arrays: against loops over the whole matrix and the embedding file's path."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.ranking.recall_of_arrays import recall
from pipeline.retrieval.ranking.small_galleries import SMALL_COLUMNS
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.retrieval.tables import COUNTS, METRICS, read_recall
from tests.retrieval.factories import SETS

COUNTS_OF_IMAGES = [3, 1, 7, 5, 2, 1, 6, 5, 4, 1, 1, 2]

Arrays = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]


def drawn(similarity: str, seed: int = 0, integers: bool = False) -> Arrays:
    """Images with 1 to 7 captions in any order; integer coordinates give many ties."""
    rng = np.random.default_rng(seed)
    image_of_caption = rng.permutation(
        np.repeat(np.arange(len(COUNTS_OF_IMAGES)), COUNTS_OF_IMAGES)
    )
    rest = (3, 4) if similarity in SETS else (4,)

    def points(count: int) -> npt.NDArray[np.float32]:
        if integers:
            return rng.integers(-1, 2, (count, *rest)).astype(np.float32)
        return rng.standard_normal((count, *rest)).astype(np.float32)

    return points(len(COUNTS_OF_IMAGES)), points(len(image_of_caption)), image_of_caption


def naive(arrays: Arrays, similarity: str, captions_per_image: int | None) -> dict[str, float]:
    """Loop over queries and items, with the tie rule: equal items stand in the order of rows."""
    images, captions, image_of_caption = arrays
    seen: dict[int, int] = {}
    kept = []
    for row, image in enumerate(image_of_caption.tolist()):
        seen[image] = seen.get(image, 0) + 1
        if captions_per_image is None or seen[image] <= captions_per_image:
            kept.append(row)
    captions, image_of_caption = captions[kept], image_of_caption[kept]
    named = SIMILARITIES[similarity]
    scores = named.between(named.prepare(images), named.prepare(captions)).astype(np.float32)
    ranks: dict[str, list[int]] = {"image_to_text": [], "text_to_image": []}
    for image, row in enumerate(scores):
        order = sorted(range(len(captions)), key=lambda c: (-row[c], c))
        own = np.flatnonzero(image_of_caption == image).tolist()
        ranks["image_to_text"].append(min(order.index(c) for c in own))
    for caption, column in enumerate(scores.T):
        order = sorted(range(len(images)), key=lambda i: (-column[i], i))
        ranks["text_to_image"].append(order.index(image_of_caption[caption]))
    table: dict[str, float] = {}
    for direction, found in ranks.items():
        for k in (1, 5, 10):
            table[f"{direction}_r{k}"] = 100 * sum(rank < k for rank in found) / len(found)
        table[f"{direction}_median_rank"] = float(np.floor(np.median(found)) + 1)
        table[f"{direction}_mean_rank"] = sum(found) / len(found) + 1
    table["rsum"] = sum(value for name, value in table.items() if re.search("_r[0-9]+$", name))
    counts = np.bincount(image_of_caption)
    return table | {
        "num_images": len(images),
        "num_captions": len(captions),
        "captions_per_image": int(counts.max()),
    }


@pytest.mark.parametrize("captions_per_image", [1, 5, None])
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("similarity", list(SIMILARITIES))
def test_figures_are_those_of_naive_loops(
    similarity: str, integers: bool, captions_per_image: int | None
) -> None:
    arrays = drawn(similarity, integers=integers)
    found = recall(*arrays, similarity=similarity, captions_per_image=captions_per_image)
    expected = naive(arrays, similarity, captions_per_image)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert list(found) == [*METRICS, *COUNTS, *SMALL_COLUMNS]


@pytest.mark.parametrize("similarity", ["cosine", "order"])
def test_figures_are_those_of_the_embedding_file(similarity: str, tmp_path: Path) -> None:
    images, captions, image_of_caption = drawn(similarity, seed=1)
    names = [f"im{k:02d}" for k in range(len(images))]
    e = Embeddings(
        tuple(names),
        images,
        tuple(f"c{k:02d}" for k in range(len(captions))),
        tuple(names[row] for row in image_of_caption),
        captions,
        similarity,
        {},
    )
    write_embeddings(tmp_path / "e.h5", e)
    evaluate(tmp_path / "e.h5", str(tmp_path / "out"))
    found = recall(images, captions, image_of_caption, similarity=similarity)
    assert read_recall(tmp_path / "out" / "recall.json") == found


def test_a_thousand_images_have_neither_chance_nor_intervals() -> None:
    points, rows = np.eye(1000, dtype=np.float32), np.arange(1000)
    assert list(recall(points, points, rows)) == [*METRICS, *COUNTS]
    assert recall(points[:999], points[:999], rows[:999])["rsum_chance"] < 5


def test_what_numpy_makes_arrays_of_is_taken() -> None:
    images, captions, image_of_caption = drawn("cosine")
    expected = recall(images, captions, image_of_caption)
    assert (
        recall(images.tolist(), captions.astype(np.float64), image_of_caption.tolist()) == expected
    )
    tensors = [torch.from_numpy(array) for array in (images, captions, image_of_caption)]
    assert recall(*tensors) == expected
    assert (
        recall(images[::-1], captions, len(images) - 1 - image_of_caption)["rsum"]
        == expected["rsum"]
    )
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
        ({"image_of_caption": [[0], [1, 2]]}, "^image_of_caption is not an array"),
        ({"image_of_caption": [0, 1, 2]}, r"shape \(3,\), expected integers of shape \(4,\)"),
        ({"image_of_caption": [0.0, 1.0, 2.0, 2.0]}, "is float64 .* expected integers"),
        ({"image_of_caption": ["a", "b", "c", "c"]}, "expected integers .* ids to rows"),
        (
            {"image_of_caption": [0, 1, 2, 3]},
            "1 captions name rows .* caption 3, row 3; rows are 0 to 2",
        ),
        ({"image_of_caption": [0, -1, 2, 1]}, "first caption 1, row -1"),
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
