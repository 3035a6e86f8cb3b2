"""Rows side by side against numpy's hstack, and what they say of themselves."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.store.hashing import canonical_json, sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.encoders.bag_of_words import BagOfWords
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.concatenation import Concatenation
from pipeline.text.encoders.mean import Mean
from pipeline.text.encoders.token_ids import TokenIds
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors import WordVectors
from pipeline.text.vocabulary import VOCABULARY_RULES, build_vocabulary

TOKENIZER = TOKENIZERS["treebank"]
TEXTS = ["dog dog cat", "zz", "", "cat bird bird zz dog"]
KNOWN = build_vocabulary(TEXTS[::2], TOKENIZER, VOCABULARY_RULES["all"])
MATRIX = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
MEAN = Mean(WordVectors("toy", ("dog", "bird"), MATRIX, "ab" * 32))
PARTS: tuple[CaptionEncoder, ...] = (
    BagOfWords(KNOWN, TOKENIZER, "counts"),
    MEAN,
    TokenIds(KNOWN, TOKENIZER, 4),
)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1], []])
def test_equals_hstack(number: int, texts: list[str]) -> None:
    parts = PARTS[:number]
    rows = Concatenation(parts).encode(texts)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, np.hstack([part.encode(texts) for part in parts]))


def test_it_says_what_it_is() -> None:
    both: CaptionEncoder = Concatenation(PARTS[:2])
    first, second = PARTS[:2]
    assert both.name == f"{first.name}+mean-toy"
    assert both.dim == first.dim + second.dim == 7
    names = f"{first.weights[0]}; toy"
    assert both.weights == (names, sha256_of_json([first.weights[1], "ab" * 32]))
    recipe = both.recipe()
    assert canonical_json(recipe)
    assert recipe == {
        "name": both.name,
        "encoder": "concatenation",
        "parts": [first.recipe(), second.recipe()],
        "dim": 7,
    }
    turned = Concatenation(PARTS[1::-1])
    assert (turned.recipe(), turned.weights) != (recipe, both.weights)


def test_reports_are_those_of_the_parts() -> None:
    reports = Concatenation((Concatenation(PARTS[:2]), PARTS[2])).reports(TEXTS)
    assert reports == {name: r for part in PARTS for name, r in part.reports(TEXTS).items()}
    assert [report.cut for report in reports.values()] == [(), (), (0, 3)]


def test_no_report_takes_the_place_of_another() -> None:
    vectors = replace(MEAN.vectors, words=("dog",), matrix=MATRIX[:1])
    namesake = Mean(vectors)
    reports = Concatenation((MEAN, namesake, MEAN, namesake)).reports(TEXTS)
    assert list(reports) == ["mean-toy", "mean-toy (2)"]
    assert [report.oov_tokens for report in reports.values()] == [4, 6]


def test_one_twice_is_taken_and_fewer_than_two_are_not() -> None:
    rows = Concatenation((MEAN, MEAN)).encode(TEXTS)
    assert np.array_equal(rows[:, :5], rows[:, 5:])
    with pytest.raises(EncoderError, match="two encoders or more, found mean-toy"):
        Concatenation((MEAN,))
    with pytest.raises(EncoderError, match="found none"):
        Concatenation(())
