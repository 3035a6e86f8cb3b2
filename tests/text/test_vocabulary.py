"""Vocabularies against plain counting, their files, and what makes none."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.text import EncoderError
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vocabulary import (
    VOCABULARY_RULES,
    Vocabulary,
    VocabularyRule,
    build_vocabulary,
    load_vocabulary,
    save_vocabulary,
)

TREEBANK = TOKENIZERS["treebank"]
ALL = VOCABULARY_RULES["all"]


def captions(number: int) -> list[str]:
    rng = np.random.default_rng(3)
    words = np.array([f"w{k}" for k in range(40)] + ["Dog", "dog", "café", "!"])
    weights = 1 / np.arange(1, len(words) + 1)
    return [
        " ".join(rng.choice(words, size=rng.integers(0, 9), p=weights / weights.sum()))
        for _ in range(number)
    ]


@pytest.mark.parametrize("number", [1, 7, 200])
@pytest.mark.parametrize(
    "rule", [ALL, VocabularyRule("some", 3), VocabularyRule("few", 2, most_frequent=5)]
)
def test_equals_plain_counting(number: int, rule: VocabularyRule) -> None:
    texts = [*captions(number), "w0 w1 w0 w0 w1 w1"]
    tokens = [TREEBANK.tokenize(text) for text in texts]
    counts = Counter(word for caption in tokens for word in caption)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    words = [word for word in words if counts[word] >= rule.minimum_count][: rule.most_frequent]
    found = build_vocabulary(texts, TREEBANK, rule)
    assert found.words == tuple(words)
    assert found.counts == tuple(counts[word] for word in words)
    assert found.caption_counts == tuple(sum(word in t for t in tokens) for word in words)
    assert found.captions == len(texts)
    assert found.index == {word: place for place, word in enumerate(words)}


def test_rules_of_the_papers() -> None:
    rules = {name: (r.minimum_count, r.most_frequent) for name, r in VOCABULARY_RULES.items()}
    assert rules == {
        "all": (1, None),
        "vsepp": (4, None),
        "w2vv": (5, None),
        "wang-flickr30k": (1, 3000),
        "wang-coco": (1, 5600),
    }


@pytest.fixture
def vocabulary() -> Vocabulary:
    return build_vocabulary(["a café dog", 'a "dog"'], TOKENIZERS["vsepp"], ALL)


def test_file_and_back(vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "some" / "vocabulary.json"
    save_vocabulary(vocabulary, path)
    again = load_vocabulary(path)
    assert again == vocabulary
    assert again.sha256 == vocabulary.sha256 == json.loads(path.read_text())["sha256"]
    again.require_tokenizer(TOKENIZERS["vsepp"])
    before = path.read_bytes()
    save_vocabulary(again, path)
    assert path.read_bytes() == before


def test_hash_covers_counts_and_policy(vocabulary: Vocabulary) -> None:
    changed = [
        vocabulary,
        replace(vocabulary, captions=3),
        replace(vocabulary, counts=(9, *vocabulary.counts[1:])),
        replace(vocabulary, tokenizer=TREEBANK.to_json()),
        replace(vocabulary, rule=VOCABULARY_RULES["w2vv"]),
    ]
    assert len({vocabulary.sha256 for vocabulary in changed}) == len(changed)


def test_another_policy(vocabulary: Vocabulary) -> None:
    with pytest.raises(EncoderError, match=r"'vsepp', not with 'treebank'.*punct"):
        vocabulary.require_tokenizer(TREEBANK)
    with pytest.raises(EncoderError, match="differ in max_length"):
        vocabulary.require_tokenizer(replace(TOKENIZERS["vsepp"], max_length=9))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "0 training captions have 0 words by the tokenizer 'w2vv-filterstop', and 1 is"),
        (["the", "!", ""], "3 training captions have 0 words"),
    ],
)
def test_no_word_left(texts: list[str], message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        build_vocabulary(texts, TOKENIZERS["w2vv-filterstop"], VOCABULARY_RULES["w2vv"])


def test_a_minimum_count_that_no_word_reaches_selects_every_word() -> None:
    tokenizer, rule = TOKENIZERS["w2vv-filterstop"], VOCABULARY_RULES["w2vv"]
    found = build_vocabulary(["dog dog cat"], tokenizer, rule)
    assert (found.words, found.rule.name, found.rule.minimum_count) == (("dog", "cat"), "w2vv", 1)
    found = build_vocabulary(["dog " * 5 + "cat"], tokenizer, rule)
    assert (found.words, found.rule) == (("dog",), rule)
    with pytest.raises(EncoderError, match="none of which has a word vector"):
        build_vocabulary(["dog dog cat"], tokenizer, rule, selectable=("bird",))


def test_files_that_are_none(vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    with pytest.raises(EncoderError, match="cannot be read"):
        load_vocabulary(path)
    for text, message in [
        ("{", "JSON is malformed"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "format None version None; this software reads 'pipeline-vocabulary' version 1"),
        ('{"format": "pipeline-vocabulary", "format_version": 2}', "version 2; this"),
    ]:
        path.write_text(text)
        with pytest.raises(EncoderError, match=message):
            load_vocabulary(path)
    path.write_bytes(b"\xff")
    with pytest.raises(EncoderError, match="JSON is malformed"):
        load_vocabulary(path)
    save_vocabulary(vocabulary, path)
    text = path.read_text()
    path.write_text(text.replace('"counts":[', '"counts":["5",', 1))
    with pytest.raises(EncoderError, match=r"counts.*\[0\]: Expected `int`, got `str`, found '5'"):
        load_vocabulary(path)
    path.write_text(text.replace('"dog"', '"cat"'))
    with pytest.raises(EncoderError, match="modified or damaged"):
        load_vocabulary(path)


def test_rules_ask_for_something() -> None:
    for counts in [(0, None), (1, 0)]:
        with pytest.raises(EncoderError, match="expected 1 or more"):
            VocabularyRule("none", *counts)
