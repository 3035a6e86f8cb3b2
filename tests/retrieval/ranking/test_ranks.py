"""Exact ranks against plain loops: ties, uneven captions, block sizes, orders of rows."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval import similarity as similarities
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.ranks import rank_both_ways
from pipeline.retrieval.ranking.recall import recall_table
from tests.retrieval.factories import SETS, made

SIMILARITIES = ["cosine", "euclidean", "dot", "order"]


def naive_score(similarity: str, x: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> float:
    a, b = [float(v) for v in x], [float(v) for v in y]
    if similarity == "order":
        return float(np.float32(-sum(max(0.0, q - p) ** 2 for p, q in zip(a, b, strict=True))))
    dot = sum(p * q for p, q in zip(a, b, strict=True))
    if similarity == "euclidean":
        return float(np.float32(-sum((p - q) ** 2 for p, q in zip(a, b, strict=True))))
    if similarity == "cosine":
        length = (sum(p * p for p in a) * sum(q * q for q in b)) ** 0.5
        return float(np.float32(dot / length)) if length else 0.0
    return float(np.float32(dot))


def naive_ranks(scored: list[tuple[float, str, bool]]) -> tuple[int, int, int]:
    """Rank of the best correct item: without ties, as defined, with every tie against it.

    A gallery item is its score, its id, and whether it is correct.
    """
    best = max(score for score, _, right in scored if right)
    first = min(i for score, i, right in scored if right and score == best)
    better = sum(score > best for score, _, right in scored if not right)
    equal = [i for score, i, right in scored if not right and score == best]
    return better, better + sum(i < first for i in equal), better + len(equal)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("counts", [[5] * 9, [1, 7, 2, 5, 1, 3, 6], [0, 0, 3, 0, 1, 0], [1], [3]])
@pytest.mark.parametrize("block_elements", [1, 7, 50, 1 << 22])
def test_ranks_equal_plain_loops(
    similarity: str, integers: bool, counts: list[int], block_elements: int
) -> None:
    e = made(counts, similarity, integers=integers)
    i2t, t2i = rank_both_ways(e, block_elements)
    # Images without a caption are searched, and are no queries.
    assert i2t.shape == (np.count_nonzero(counts),)
    assert t2i.shape == (sum(counts),)
    assert len(e.query_ids) == len(i2t)
    asking = zip(e.query_ids, e.image_embeddings[e.captioned], strict=True)
    for rank, (image, row) in zip(i2t, asking, strict=True):
        gallery = [
            (naive_score(similarity, row, y), c, i == image)
            for c, i, y in zip(
                e.caption_ids, e.caption_image_ids, e.caption_embeddings, strict=True
            )
        ]
        optimistic, expected, pessimistic = naive_ranks(gallery)
        assert rank == expected
        assert optimistic <= rank <= pessimistic
    for rank, image_of_caption, row in zip(
        t2i, e.caption_image_ids, e.caption_embeddings, strict=True
    ):
        gallery = [
            (naive_score(similarity, x, row), i, i == image_of_caption)
            for i, x in zip(e.image_ids, e.image_embeddings, strict=True)
        ]
        assert rank == naive_ranks(gallery)[1]


def shuffled(e: Embeddings, seed: int) -> tuple[Embeddings, npt.NDArray, npt.NDArray]:
    rng = np.random.default_rng(seed)
    images, captions = rng.permutation(len(e.image_ids)), rng.permutation(len(e.caption_ids))
    moved = replace(
        e,
        image_ids=tuple(e.image_ids[k] for k in images),
        image_embeddings=e.image_embeddings[images],
        caption_ids=tuple(e.caption_ids[k] for k in captions),
        caption_image_ids=tuple(e.caption_image_ids[k] for k in captions),
        caption_embeddings=e.caption_embeddings[captions],
    )
    return moved, images, captions


@pytest.mark.parametrize("similarity", [*SIMILARITIES, *SETS])
def test_order_of_rows_and_block_size_change_nothing(similarity: str) -> None:
    e = made([6, 5, 1, 5, 8, 2] * (3 if similarity in SETS else 6), similarity, seed=3)
    # Duplicates: every third image and caption has the row of its neighbour.
    e.image_embeddings[::3] = e.image_embeddings[1::3]
    e.caption_embeddings[::3] = e.caption_embeddings[1::3]
    i2t, t2i = rank_both_ways(e)
    for seed, block_elements in ((4, 1), (5, 1000), (6, 12345)):
        moved, images, captions = shuffled(e, seed)
        moved_i2t, moved_t2i = rank_both_ways(moved, block_elements)
        assert np.array_equal(moved_i2t, i2t[images])
        assert np.array_equal(moved_t2i, t2i[captions])
        assert recall_table(moved) == recall_table(e)


@pytest.mark.parametrize("similarity", [*SIMILARITIES, *SETS])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_constant_embeddings_score_about_chance(similarity: str, value: float) -> None:
    e = made([5] * 100, similarity)
    e.image_embeddings[:] = value
    e.caption_embeddings[:] = value
    table = recall_table(e)
    assert table["text_to_image_r1"] == 1.0
    assert table["text_to_image_r10"] == 10.0
    assert table["image_to_text_r1"] == 1.0
    assert table["image_to_text_r10"] <= 10.0
    assert np.array_equal(np.sort(rank_both_ways(e)[1]), np.repeat(np.arange(100), 5))


@pytest.mark.parametrize("block_elements", [1, 60, 1000, 1 << 22])
def test_every_pair_is_scored_once_in_blocks_of_bounded_size(
    block_elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = made([5, 1, 7, 2, 3, 1] * 6, "dot")
    shapes: list[tuple[int, int]] = []

    def dot(images: npt.NDArray, captions: npt.NDArray) -> npt.NDArray:
        shapes.append((len(images), len(captions)))
        return images @ captions.T

    watched = replace(similarities.SIMILARITIES["dot"], between=dot)
    monkeypatch.setitem(similarities.SIMILARITIES, "dot", watched)
    rank_both_ways(e, block_elements)
    assert sum(n * m for n, m in shapes) == len(e.image_ids) * len(e.caption_ids)
    assert max(n * m for n, m in shapes) <= max(block_elements, 7)


def test_perfect_embeddings_score_everything() -> None:
    e = made([5] * 40, "euclidean")
    row = dict(zip(e.image_ids, e.image_embeddings, strict=True))
    perfect = replace(e, caption_embeddings=np.array([row[i] for i in e.caption_image_ids]))
    for similarity in ("cosine", "euclidean"):
        assert recall_table(replace(perfect, similarity=similarity))["rsum"] == 600.0


def test_tie_rule_of_the_documentation() -> None:
    """The example of docs/evaluation.md: b is better, a equal and before c, d equal and after."""
    e = Embeddings(
        ("x", "y"),
        np.array([[1, 0], [0, 1]], dtype=np.float32),
        ("d", "c", "a", "b"),
        ("y", "x", "y", "y"),
        np.array([[3, 3], [1, 1], [2, 2], [2, 1]], dtype=np.float32),
        "cosine",
        {},
    )
    assert rank_both_ways(e)[0][0] == 2


@pytest.mark.parametrize("similarity", ["dot", "euclidean"])
def test_overflow_is_an_error(similarity: str) -> None:
    e = made([1, 1], similarity)
    e.image_embeddings[:] = 3e38
    with pytest.raises(EmbeddingsError, match=r"not a finite float32 .* 3e\+38\): normalise them"):
        rank_both_ways(e)
    assert len(rank_both_ways(replace(e, similarity="cosine"))[0]) == 2


def test_nan_that_came_after_the_check_is_an_error() -> None:
    e = made([2, 2], "cosine")
    e.caption_embeddings[1, 1] = np.nan
    with pytest.raises(EmbeddingsError, match="not a finite"):
        rank_both_ways(e)


def test_without_captions_there_is_nothing_to_rank() -> None:
    with pytest.raises(EmbeddingsError, match="no captions: nothing to rank; none of the 3 images"):
        rank_both_ways(made([0, 0, 0], "cosine"))
