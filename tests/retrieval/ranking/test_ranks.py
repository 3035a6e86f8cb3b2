"""Exact ranks by numpy and by torch against plain loops: ties, uneven captions, blocks, orders."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval import similarity as similarities
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking import on_device
from pipeline.retrieval.ranking.on_device import rank_on
from pipeline.retrieval.ranking.ranks import Ranker, rank_both_ways
from pipeline.retrieval.ranking.recall import recall_table
from tests.retrieval.factories import SETS, made

SIMILARITIES = ["cosine", "euclidean", "dot", "order"]


@pytest.fixture(params=["numpy 1", "numpy 7", "numpy 50", "numpy 4194304", "torch 7", "torch 333"])
def rank(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ranker:
    """Each implementation, with blocks of so many pairs."""
    name, elements = request.param.split()
    if name == "numpy":
        return partial(rank_both_ways, block_elements=int(elements))
    monkeypatch.setattr(on_device, "BLOCK_ELEMENTS", int(elements))
    return rank_on("cpu")


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
def test_ranks_equal_plain_loops(
    similarity: str, integers: bool, counts: list[int], rank: Ranker
) -> None:
    e = made(counts, similarity, integers=integers)
    i2t, t2i = rank(e)
    assert i2t.dtype == t2i.dtype == np.int64
    # Images without a caption are searched, and are no queries.
    assert i2t.shape == (np.count_nonzero(counts),)
    assert t2i.shape == (sum(counts),)
    assert len(e.query_ids) == len(i2t)
    asking = zip(e.query_ids, e.image_embeddings[e.captioned], strict=True)
    for found, (image, row) in zip(i2t, asking, strict=True):
        gallery = [
            (naive_score(similarity, row, y), c, i == image)
            for c, i, y in zip(
                e.caption_ids, e.caption_image_ids, e.caption_embeddings, strict=True
            )
        ]
        optimistic, expected, pessimistic = naive_ranks(gallery)
        assert found == expected
        assert optimistic <= found <= pessimistic
    for found, image_of_caption, row in zip(
        t2i, e.caption_image_ids, e.caption_embeddings, strict=True
    ):
        gallery = [
            (naive_score(similarity, x, row), i, i == image_of_caption)
            for i, x in zip(e.image_ids, e.image_embeddings, strict=True)
        ]
        assert found == naive_ranks(gallery)[1]


@pytest.mark.parametrize("similarity", [*SIMILARITIES, *SETS])
def test_order_of_rows_and_block_size_change_nothing(similarity: str, rank: Ranker) -> None:
    e = made([6, 5, 1, 5, 8, 2, 1], similarity, seed=3)
    # Duplicates: every third image and caption has the row of its neighbour; and zero rows.
    e.image_embeddings[:-1:3] = e.image_embeddings[1::3]
    e.caption_embeddings[:-1:3] = e.caption_embeddings[1::3]
    e.image_embeddings[2] = 0.0
    e.caption_embeddings[::5] = 0.0
    i2t, t2i = rank_both_ways(e)
    rng = np.random.default_rng(4)
    images, captions = rng.permutation(len(e.image_ids)), rng.permutation(len(e.caption_ids))
    moved = replace(
        e,
        image_ids=tuple(e.image_ids[k] for k in images),
        image_embeddings=e.image_embeddings[images],
        caption_ids=tuple(e.caption_ids[k] for k in captions),
        caption_image_ids=tuple(e.caption_image_ids[k] for k in captions),
        caption_embeddings=e.caption_embeddings[captions],
    )
    moved_i2t, moved_t2i = rank(moved)
    assert np.array_equal(moved_i2t, i2t[images])
    assert np.array_equal(moved_t2i, t2i[captions])
    assert recall_table(moved, rank=rank) == recall_table(e)


@pytest.mark.parametrize("similarity", [*SIMILARITIES, *SETS])
@pytest.mark.parametrize("value", [0.0, 0.1])
@pytest.mark.parametrize("rank", [rank_both_ways, rank_on("cpu")], ids=["numpy", "torch"])
def test_constant_embeddings_score_at_most_chance(
    similarity: str, value: float, rank: Ranker
) -> None:
    e = made([5] * 100, similarity)
    e.image_embeddings[:] = value
    e.caption_embeddings[:] = value
    table = recall_table(e, rank=rank)
    assert table["text_to_image_r1"] == 1.0
    assert table["text_to_image_r10"] == 10.0
    assert table["image_to_text_r1"] == 1.0
    assert table["image_to_text_r10"] <= 10.0
    assert np.array_equal(np.sort(rank(e)[1]), np.repeat(np.arange(100), 5))


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


@pytest.mark.parametrize("origin", [0, 1e3, 1e6, -3e7])
def test_distances_far_from_the_origin_are_exact(origin: float, rank: Ranker) -> None:
    e = made([2, 1, 3, 1, 2, 2], "euclidean")
    rng = np.random.default_rng(3)
    sides = [
        (origin + 8 * rng.integers(-9, 9, rows.shape)).astype(np.float32)
        for rows in (e.image_embeddings, e.caption_embeddings)
    ]
    near = [(rows - np.float32(origin)).astype(np.float32) for rows in sides]
    far, close = (replace(e, image_embeddings=x, caption_embeddings=y) for x, y in (sides, near))
    for ranks, expected in zip(rank(far), rank(close), strict=True):
        assert ranks.tolist() == expected.tolist()


def test_perfect_embeddings_score_everything() -> None:
    e = made([5] * 40, "euclidean")
    row = dict(zip(e.image_ids, e.image_embeddings, strict=True))
    perfect = replace(e, caption_embeddings=np.array([row[i] for i in e.caption_image_ids]))
    for similarity in ("cosine", "euclidean"):
        assert recall_table(replace(perfect, similarity=similarity))["rsum"] == 600.0


def test_tie_rule_of_the_documentation() -> None:
    """The example of docs/evaluation.md: b is better, a equal and before c, d and e after."""
    e = Embeddings(
        ("x", "y"),
        np.array([[1, 0], [0, 1]], dtype=np.float32),
        ("d", "c", "a", "b", "e"),
        ("y", "x", "y", "y", "y"),
        np.array([[3, 3], [1, 1], [2, 2], [2, 1], [4, 4]], dtype=np.float32),
        "cosine",
        {},
    )
    assert rank_both_ways(e)[0][0] == 2


def overflow(similarity: str) -> Embeddings:
    e = made([1, 1], similarity)
    e.image_embeddings[:] = 3e38
    return e


def scaled(similarity: str, factor: float) -> Embeddings:
    e = made([1, 2], similarity)
    e.image_embeddings[:] *= np.float32(factor)
    e.caption_embeddings[:] *= np.float32(factor)
    return e


def few_tiny(similarity: str) -> Embeddings:
    e = made([1, 2, 1], similarity)
    e.image_embeddings[:2] *= np.float32(1e-25)
    e.caption_embeddings[:2] *= np.float32(1e-25)
    return e


def nan_after_the_check() -> Embeddings:
    e = made([2, 2], "cosine")
    e.caption_embeddings[1, 1] = np.nan
    return e


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: overflow("dot"), r"not a finite float32 .* 3e\+38\): normalise them"),
        (lambda: overflow("euclidean"), "not a finite float32"),
        (
            lambda: scaled("euclidean", 1e-25),
            r"0 as a float32 .*\(up to \S+e-25\): normalise",
        ),
        (lambda: scaled("dot", 1e-25), "0 as a float32 number"),
        *((partial(few_tiny, name), "0 as a float32") for name in ("dot", "euclidean", "order")),
        (nan_after_the_check, "not a finite"),
    ],
)
@pytest.mark.parametrize("rank", [rank_both_ways, rank_on("cpu")], ids=["numpy", "torch"])
def test_what_has_no_ranks_is_refused(
    make: Callable[[], Embeddings], message: str, rank: Ranker
) -> None:
    with pytest.raises(EmbeddingsError, match=message):
        rank(make())


def test_cosines_of_large_numbers_are_finite_and_no_captions_have_no_ranks() -> None:
    assert len(rank_both_ways(replace(overflow("dot"), similarity="cosine"))[0]) == 2
    with pytest.raises(EmbeddingsError, match="nothing to rank; none of the 3 images"):
        rank_both_ways(made([0, 0, 0], "cosine"))
