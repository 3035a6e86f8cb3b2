"""Tokenizers: what each splits, drops and keeps."""

from dataclasses import replace

import pytest

from pipeline.store.errors import UnknownName
from pipeline.store.hashing import canonical_json, sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.tokenizers.lemmas import RuleLemmatizer
from pipeline.text.tokenizers.tokenizer import TOKENIZERS, Tokenizer
from pipeline.text.tokenizers.word_lists import STOP_WORDS, stop_words_sha256


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A dog runs, fast!", ["a", "dog", "runs", "fast"]),
        ("A dog. Two cats. A BIRD.", ["a", "dog", "two", "cats", "a", "bird"]),
        ("the u.s. army", ["the", "u.s.", "army"]),
        ("It doesn't move", ["it", "does", "n't", "move"]),
        ("They cannot stop", ["they", "can", "not", "stop"]),
        ("a dog's well-worn toy", ["a", "dog", "'s", "well-worn", "toy"]),
        ('he says "hi" (2 times)', ["he", "says", "hi", "2", "times"]),
        ("cafe\u0301", ["café"]),
        ("a\u00a0dog\tand\u2003a cat", ["a", "dog", "and", "a", "cat"]),
        ("dog dog", ["dog", "dog"]),
        ("... !? -- ``", []),
        ("", []),
        ("犬が走る", ["犬が走る"]),
    ],
)
def test_treebank(text: str, tokens: list[str]) -> None:
    assert TOKENIZERS["treebank"].tokenize(text) == tokens


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("treebank", ["the", "man", "'s", "t-shirt", "a", "dog", "is", "n't", "wet", "3.5"]),
        (
            "vsepp",
            [
                *("the", "man", "'s", "t-shirt", ",", "a", "dog", "is", "n't", "wet"),
                *("(", "3.5", ")", "."),
            ],
        ),
        ("w2vv", ["the", "man", "s", "t", "shirt", "a", "dog", "isn", "t", "wet", "3", "5"]),
        ("w2vv-filterstop", ["man", "shirt", "dog", "isn", "wet", "3", "5"]),
        ("klein", ["The", "man's", "t-shirt", "a", "dog", "isn't", "wet", "3", "5"]),
        ("whitespace", ["the", "man's", "t-shirt,", "a", "dog", "isn't", "wet", "(3.5)."]),
        ("kiros", ["the", "man's", "t-shirt,", "a", "dog", "isn't", "wet", "(3.5)."]),
    ],
)
def test_each_tokenizer(name: str, tokens: list[str]) -> None:
    assert TOKENIZERS[name].tokenize("The man's t-shirt, a dog isn't wet (3.5).") == tokens


def test_there_are_no_other_tokenizers() -> None:
    names = {"treebank", "vsepp", "w2vv", "w2vv-filterstop", "klein", "whitespace", "kiros"}
    assert set(TOKENIZERS) == names


def test_stop_words_then_lemmas_then_length() -> None:
    tokenizer = Tokenizer(
        "all",
        stop_words="english-function",
        lemmatizer=RuleLemmatizer("toy", ["dog", "run", "hat"]),
        max_length=3,
    )
    assert tokenizer.tokenize("The dogs were running with hats and shoes") == ["dog", "run", "hat"]
    assert replace(tokenizer, max_length=None).tokenize("Two dogs of the men") == [
        "two",
        "dog",
        "men",
    ]


def test_recipe_says_everything() -> None:
    tokenizers = [
        *TOKENIZERS.values(),
        replace(TOKENIZERS["treebank"], max_length=4),
        replace(TOKENIZERS["treebank"], lemmatizer=RuleLemmatizer("toy", ["a"])),
        replace(TOKENIZERS["treebank"], lemmatizer=RuleLemmatizer("toy", ["b"])),
    ]
    assert len({canonical_json(tokenizer.to_json()) for tokenizer in tokenizers}) == len(tokenizers)
    asked = TOKENIZERS["w2vv-filterstop"].to_json()["stop_words"]
    words = sorted(STOP_WORDS["english-function"])
    assert asked == {"name": "english-function", "sha256": sha256_of_json(words)}
    assert asked["sha256"] == stop_words_sha256("english-function")
    assert 120 < len(words) < 200


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tokenizer("x", splitter="spacy"), "splitter 'spacy' is unknown.*treebank"),
        (
            lambda: Tokenizer("x", stop_words="nltk"),
            "list of stop words 'nltk' is unknown.*english-function",
        ),
        (
            lambda: Tokenizer("x", punctuation="some"),  # type: ignore[arg-type]
            "punctuation 'some' is unknown.*dropped, kept",
        ),
        (lambda: Tokenizer("x", max_length=0), "is 0; set 1 word or more"),
    ],
)
def test_what_there_is_not(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises((EncoderError, UnknownName), match=message):
        make()
