"""The recall table: known ranks, columns, which captions count, and chance by random orders."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import CHANCE_COLUMNS, CUTOFFS, DIRECTIONS, measure_of
from pipeline.retrieval.ranking.blocks import HostBlock
from pipeline.retrieval.ranking.galleries import first_captions
from pipeline.retrieval.ranking.recall import (
    chance,
    mean_average_precision,
    measures,
    recall_table,
)
from tests.retrieval.factories import made


@pytest.mark.parametrize(
    ("ranks", "median", "mean"),
    [([0], 1, 1.0), ([0, 1], 1, 1.5), ([0, 3], 2, 2.5), ([9, 0, 4], 5, 16 / 3), ([2, 3], 3, 3.5)],
)
def test_median_and_mean_of_known_ranks(ranks: list[int], median: int, mean: float) -> None:
    values = measures(np.array(ranks))
    assert values["median_rank"] == median
    assert values["mean_rank"] == pytest.approx(mean)


def test_recall_and_mean_inverted_rank_of_known_ranks() -> None:
    values = measures(np.array([0, 1, 4, 5, 9, 10, 11, 0]))
    assert (values["r1"], values["r5"], values["r10"]) == (25.0, 50.0, 75.0)
    _, inverted = measure_of("text_to_image_mean_inverted_rank")
    assert inverted.of(np.array([0])) == 1.0
    assert inverted.of(np.array([0, 1, 3, 9])) == pytest.approx(1.85 / 4)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "order"])
def test_mean_average_precision_is_that_of_a_loop(similarity: str) -> None:
    """With equal captions, images without one, and captions in any order of images."""
    rng = np.random.default_rng(3)
    images, captions = rng.integers(1, 3, (7, 2)), rng.integers(1, 3, (16, 2))
    of = [*"aabbbcdefabbcdef"]
    ids = [f"{image}#{k}" for k, image in enumerate(of)]
    rows = images.astype(np.float32), captions.astype(np.float32)
    e = Embeddings([*"gfedcba"], rows[0], ids, of, rows[1], similarity, {})
    scores = HostBlock.of(similarity, e.image_embeddings, e.caption_embeddings).scores
    expected = []
    for row, image in enumerate(e.image_ids):
        best_first = sorted(range(16), key=lambda k: (-scores[row, k], ids[k]))
        ranks = [n for n, k in enumerate(best_first, 1) if of[k] == image]
        expected.append([found / n for found, n in enumerate(ranks, 1)])
    wanted = 100 * np.mean([np.mean(found) for found in expected if found])
    assert mean_average_precision(e) == pytest.approx(wanted)
    assert mean_average_precision(e, images_at_once=2) == pytest.approx(wanted)


def on_a_line(caption_ids: tuple[str, ...], image_ids: tuple[str, ...]) -> Embeddings:
    images = tuple(dict.fromkeys(image_ids))
    rng = np.random.default_rng(0)
    return Embeddings(
        images,
        rng.standard_normal((len(images), 4)).astype(np.float32),
        caption_ids,
        image_ids,
        np.arange(4 * len(caption_ids), dtype=np.float32).reshape(-1, 4),
        "cosine",
        {"from": "test"},
    )


def test_columns_are_the_contract() -> None:
    table = recall_table(on_a_line(("a#0", "b#0", "b#1"), ("a", "b", "b")))
    measured = ["r1", "r5", "r10", "median_rank", "mean_rank"]
    assert list(table) == [
        *(f"{direction}_{m}" for direction in DIRECTIONS for m in measured),
        *("rsum", "num_images", "num_captions", "captions_per_image"),
    ]
    assert all(type(v) in (int, float) for v in table.values())
    assert table["rsum"] == sum(v for k, v in table.items() if k.rpartition("_r")[2].isdigit())
    assert (table["num_images"], table["num_captions"], table["captions_per_image"]) == (2, 3, 2)


def test_only_the_first_five_captions_count() -> None:
    numbers = (11, 2, 0, 1, 10, 3, 4)
    e = on_a_line((*(f"a#{k}" for k in numbers), "b#0"), (*("a" for _ in numbers), "b"))
    kept = first_captions(e, 5)
    assert kept.caption_ids == ("a#2", "a#0", "a#1", "a#3", "a#4", "b#0")
    rows = [e.caption_ids.index(i) for i in kept.caption_ids]
    assert np.array_equal(kept.caption_embeddings, e.caption_embeddings[rows])
    assert kept.caption_image_ids == ("a",) * 5 + ("b",)
    assert recall_table(e) == recall_table(kept, captions_per_image=None)
    everything = recall_table(e, captions_per_image=None)
    assert (everything["num_captions"], everything["captions_per_image"]) == (8, 7)
    with pytest.raises(ValueError, match="at least 1"):
        recall_table(e, captions_per_image=0)


def test_unnumbered_captions_count_in_file_order() -> None:
    e = on_a_line(("30", "20", "10", "7"), ("3", "3", "3", "4"))
    assert first_captions(e, 2).caption_ids == ("30", "20", "7")
    one_unnumbered = replace(e, caption_ids=("3#1", "3#0", "10", "7"))
    assert first_captions(one_unnumbered, 1).caption_ids == ("3#1", "7")


@pytest.mark.parametrize("counts", [(1,), (2,), (3, 1), (1, 2, 4), (1, 1, 1, 1, 1, 1, 1)])
def test_chance_is_the_mean_over_all_orders(counts: tuple[int, ...]) -> None:
    images = tuple(f"im{k}" for k, n in enumerate(counts) for _ in range(n))
    e = on_a_line(tuple(f"c{k}" for k in range(len(images))), images)
    levels = chance(e, with_ranks=False)
    orders = np.array(list(permutations(range(len(images)))))
    for k in CUTOFFS:
        images_in_order = np.array([int(i[2:]) for i in images])[orders[:, :k]]
        hits = [(images_in_order == image).any(axis=1).mean() for image in range(len(counts))]
        assert levels[f"image_to_text_r{k}_chance"] == pytest.approx(100 * np.mean(hits))
        assert levels[f"text_to_image_r{k}_chance"] == pytest.approx(100 * min(1, k / len(counts)))


def test_chance_of_many_captions() -> None:
    images = tuple(f"{k // 5}" for k in range(5000))
    levels = chance(on_a_line(tuple(f"c{k}" for k in range(5000)), images), with_ranks=False)
    assert levels["image_to_text_r1_chance"] == pytest.approx(0.1)
    none = np.prod([(4995 - place) / (5000 - place) for place in range(10)])
    assert levels["image_to_text_r10_chance"] == pytest.approx(100 * (1 - none))
    assert levels["text_to_image_r10_chance"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("counts", "draws"), [([1], 1), ([1, 1], 600), ([5] * 7, 600), ([1, 4, 2, 9, 3], 600)]
)
def test_chance_is_what_random_embeddings_find(counts: list[int], draws: int) -> None:
    tables = [recall_table(made(counts, "cosine", seed), None) for seed in range(draws)]
    expected = {name: float(np.mean([t[name] for t in tables])) for name in tables[0]}
    found = chance(made(counts, "cosine"), with_ranks=True)
    assert {*found} == {*CHANCE_COLUMNS}
    for name in (name.removesuffix("_chance") for name in CHANCE_COLUMNS):
        # Ranks of one draw depend on each other, so that its mean varies more than that of as many.
        if not name.endswith("median_rank"):
            assert found[f"{name}_chance"] == pytest.approx(expected[name], rel=0.08), name
    assert found["rsum_chance"] == pytest.approx(expected["rsum"], rel=0.03)


def test_median_ranks_of_chance_are_those_of_one_query() -> None:
    """Against the share of random orders in which the best of the right items comes so early."""
    rng = np.random.default_rng(0)
    counts = [1, 1, 2, 6]
    owner = np.repeat(np.arange(4), counts)
    ranks = [
        1 + int(np.flatnonzero(rng.permutation(owner) == image)[0])
        for _ in range(4000)
        for image in range(4)
    ]
    found = chance(made(counts, "cosine"), with_ranks=True)
    assert found["image_to_text_median_rank_chance"] == np.median(ranks)
    for images, median in ((1, 1), (2, 1), (3, 2), (4, 2), (999, 500)):
        of = chance(made([1] * images, "cosine"), with_ranks=True)
        assert [of[f"{d}_median_rank_chance"] for d in DIRECTIONS] == [median, median]
