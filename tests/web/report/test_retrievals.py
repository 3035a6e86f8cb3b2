"""Breakdowns of ranks against naive loops, and the choice of what is shown."""

import random
from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from pipeline.store.hashing import chosen
from pipeline.studies.embedding_map.plane import Projection, placed
from pipeline.studies.embedding_map.typical_words import words_of
from pipeline.web.report.retrievals import (
    MAPPED,
    PLACED,
    by_length,
    by_word,
    sentence_plane,
    sentences_to_place,
    worst,
)


def _queries(number: int, seed: int) -> tuple[list[str], list[int]]:
    rng = random.Random(seed)
    words = ["dog", "Dog", "a", "grass", "it's", "runs", "été", "3"]
    texts = [" ".join(rng.choices(words, k=rng.randint(0, 9))) + " ." for _ in range(number)]
    return texts, [rng.randrange(40) for _ in range(number)]


@pytest.mark.parametrize(("number", "least"), [(1, 1), (1, 5), (60, 1), (300, 17), (300, 10_000)])
def test_lengths_part_the_queries(number: int, least: int) -> None:
    texts, ranks = _queries(number, number)
    bins = by_length(texts, ranks, least)
    assert sum(part.queries for part in bins) == number
    assert all(part.queries >= least for part in bins) or len(bins) == 1
    assert all(a.last < b.first for a, b in pairwise(bins))
    for part in bins:
        inside = [
            (len(words_of(text)), rank)
            for text, rank in zip(texts, ranks, strict=True)
            if part.first <= len(words_of(text)) <= part.last
        ]
        assert part.queries == len(inside)
        assert part.words == pytest.approx(sum(length for length, _ in inside) / len(inside))
        assert part.r10 == pytest.approx(100 * sum(r < 10 for _, r in inside) / len(inside))
        assert part.median_rank == median(r for _, r in inside) // 1 + 1
        # No bin could have ended sooner, except the last, which takes the rest.
        last_but_one = [rank for length, rank in inside if length < part.last]
        assert len(last_but_one) < least or part is bins[-1]


@pytest.mark.parametrize("least", [1, 40])
def test_words_count_once_a_query(least: int) -> None:
    texts, ranks = _queries(200, 5)
    texts.append("dog dog dog")
    ranks.append(0)
    rows = {row.word: row for row in by_word(texts, ranks, least)}
    for word in ("dog", "a", "grass", "it's", "runs", "été", "3"):
        inside = [r for t, r in zip(texts, ranks, strict=True) if word in t.lower().split(" ")]
        if len(inside) < least:
            assert word not in rows
            continue
        assert rows[word].queries == len(inside)
        assert rows[word].r10 == pytest.approx(100 * sum(r < 10 for r in inside) / len(inside))
        assert rows[word].median_rank == median(inside) // 1 + 1
    order = [(-row.r10, row.median_rank, row.word) for row in rows.values()]
    assert order == sorted(order)
    assert "Dog" not in rows
    assert "." not in rows


def test_words_are_letters_and_digits() -> None:
    assert words_of("A man 's dog, isn’t it? <b>x_1</b>") == [
        "a", "man", "s", "dog", "isn’t", "it", "b", "x_1", "b",
    ]  # fmt: skip
    assert words_of(" . ") == []


def test_the_choice_depends_on_seed_and_ids_alone() -> None:
    ids = [f"image {k}" for k in range(50)]
    first = chosen(ids, 6, 0)
    assert len(first) == 6
    assert chosen(ids[::-1], 6, 0) == first
    assert chosen(ids, 6, 1) != first
    assert sorted(chosen(ids, 99, 0)) == sorted(ids)
    assert chosen([], 3, 0) == []


def test_worst_are_one_a_group_and_ties_by_id() -> None:
    ids = ["d", "c", "b", "a", "e"]
    assert worst(ids, [9, 9, 9, 3, 5], ["x", "y", "x", "z", "z"], 3) == ["b", "c", "e"]
    assert worst(ids, [9, 9, 9, 3, 5], ids, 2) == ["b", "c"]
    assert worst([], [], [], 2) == []


@pytest.mark.parametrize(("projection", "number"), [("pca", MAPPED), ("tsne", PLACED)])
def test_the_same_sentences_are_drawn_by_either_projection(
    projection: Projection, number: int
) -> None:
    image_of = {f"{k}#{c}": str(k) for k in range(PLACED + 40) for c in range(2)}
    sentences = sentences_to_place(image_of, projection)
    assert [*sentences] == chosen([*dict.fromkeys(image_of.values())], number, 0)
    rows = np.random.default_rng(0).random((2 * number, 5)).astype(np.float32)
    places, shares = sentence_plane(rows, sentences, projection)
    assert [*places] == [*sentences][:MAPPED]
    points = [point for of_image in places.values() for point in of_image]
    assert points == [tuple(p) for p in placed(rows, projection)[0][: 2 * MAPPED].tolist()]
    assert (shares is None) == (projection == "tsne")
