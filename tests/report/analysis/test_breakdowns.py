"""Breakdowns of ranks against naive loops, and the choice of what is shown."""

import random
from itertools import pairwise
from statistics import median

import pytest

from pipeline.report.analysis.breakdowns import (
    by_length,
    by_word,
    chosen,
    images_of,
    telling_words,
    words_of,
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
    assert sum(one.queries for one in bins) == number
    assert all(one.queries >= least for one in bins) or len(bins) == 1
    assert all(a.last < b.first for a, b in pairwise(bins))
    for one in bins:
        inside = [
            (len(words_of(text)), rank)
            for text, rank in zip(texts, ranks, strict=True)
            if one.first <= len(words_of(text)) <= one.last
        ]
        assert one.queries == len(inside)
        assert one.words == pytest.approx(sum(length for length, _ in inside) / len(inside))
        assert one.r10 == pytest.approx(100 * sum(r < 10 for _, r in inside) / len(inside))
        assert one.median_rank == median(r for _, r in inside) // 1 + 1
        # No bin could have ended sooner, except the last, which takes the rest.
        last_but_one = [rank for length, rank in inside if length < one.last]
        assert len(last_but_one) < least or one is bins[-1]


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


def test_telling_words_agree_with_a_loop_over_pairs() -> None:
    """Kappa from all ordered pairs of sentences of one image."""
    rng = random.Random(1)
    kinds = ("dog", "cat", "sea")
    captions = {
        f"i{k}": [f"a {kinds[k % 3]} {rng.choice(('runs', 'sits'))}" for _ in range(2 + k % 4)]
        for k in range(30)
    }
    captions["i0"] = ["a cat runs", "a dog runs"]
    captions["lonely"] = ["a whale"]
    kappas = {}
    texts = [set(words_of(t)) for of in captions.values() if len(of) > 1 for t in of]
    for word in ("dog", "cat", "sea", "runs", "sits"):
        share = sum(word in one for one in texts) / len(texts)
        others = [
            word in words_of(second)
            for of in captions.values()
            for i, first in enumerate(of)
            for j, second in enumerate(of)
            if i != j and word in words_of(first)
        ]
        kappas[word] = (sum(others) / len(others) - share) / (1 - share)
    expected = tuple(sorted(kappas, key=lambda word: (-kappas[word], word)))
    assert telling_words(captions, 3, 9) == expected
    assert set(expected[:3]) == set(kinds)
    assert telling_words(captions, 3, 2) == expected[:2]
    assert telling_words(captions, 31, 9) == ()
    assert telling_words({}, 1, 9) == ()


def test_of_singular_and_plural_the_more_frequent_is_kept() -> None:
    pairs = {"diamond": ["a diamond", "one diamond", "the diamond"], "many": ["two diamonds"] * 2,
             "boxes": ["boxes", "two boxes", "red boxes"], "box": ["a box", "the box"],
             "sea": ["a sea", "the sea"], "glass": ["glass"] * 2, "glas": ["glas"] * 2}  # fmt: skip
    found = telling_words(pairs, 1, 99)
    assert {"diamond", "boxes", "sea", "glas"} <= set(found)  # of equal ones the first
    assert not {"diamonds", "box", "glass"} & set(found)
    assert telling_words(pairs, 1, 2) == found[:2]


def test_an_image_speaks_of_one_word() -> None:
    captions = {"x": ["dog", "a dog", "sea"], "y": ["dog"], "z": ["sea", "sky"], "o": []}
    assert images_of(["dog", "sea"], captions, 2) == {"dog": ("y", "x"), "sea": ("z",)}
    assert images_of(["dog", "sea"], captions, 1) == {"dog": ("y",), "sea": ("z",)}
    assert images_of(["whale"], captions, 3) == {"whale": ()}
