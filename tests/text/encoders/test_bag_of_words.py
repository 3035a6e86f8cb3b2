"""Bag of words against a plain loop, tf-idf against scikit-learn's."""

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from pipeline.text import EncoderError
from pipeline.text.encoders.bag_of_words import BagOfWords, Weighting
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.tokenizers.by_name import tfidf_tokenizer
from pipeline.text.tokenizers.lemmas import RuleLemmatizer
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vocabulary import VOCABULARY_RULES, VocabularyRule, build_vocabulary

WORDS = [f"{letter}{letter}s" for letter in "bcdfghjklmnp"]
LEMMAS = RuleLemmatizer("toy", [f"{letter}{letter}s" for letter in "bc"])
TOKENIZER = tfidf_tokenizer(LEMMAS)


def captions(number: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    some = np.array([*WORDS, "the", "unheard!"])
    return [" ".join(rng.choice(some, size=rng.integers(0, 12))) for _ in range(number)]


TRAINING = captions(60, seed=1)
KNOWN = build_vocabulary(TRAINING, TOKENIZER, VocabularyRule("few", most_frequent=9))
ENCODERS: list[CaptionEncoder] = [
    BagOfWords(KNOWN, TOKENIZER, "counts"),
    BagOfWords(KNOWN, TOKENIZER, "tfidf"),
]


@pytest.mark.parametrize("number", [0, 1, 7, 40])
def test_bag_of_words_equals_a_plain_loop(number: int) -> None:
    texts = captions(number, seed=2)
    rows = ENCODERS[0].encode(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (number, 9)
    for row, text in zip(rows, texts, strict=True):
        assert row.tolist() == [TOKENIZER.tokenize(text).count(word) for word in KNOWN.words]


@pytest.mark.parametrize("number", [0, 1, 7, 40])
def test_tfidf_equals_scikit_learns(number: int) -> None:
    texts = captions(number, seed=3)
    oracle = TfidfVectorizer(analyzer=TOKENIZER.tokenize, vocabulary=list(KNOWN.words)).fit(
        TRAINING
    )
    rows = ENCODERS[1].encode(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (number, 9)
    if texts:
        np.testing.assert_allclose(rows, oracle.transform(texts).toarray(), rtol=1e-6, atol=0)


def test_tfidf_by_hand() -> None:
    tokenizer = TOKENIZERS["treebank"]
    known = build_vocabulary(["dog cat", "dog dog", "dog"], tokenizer, VOCABULARY_RULES["all"])
    row = BagOfWords(known, tokenizer, "tfidf").encode(["dog dog cat bird"])[0]
    raw = np.array([2 * (np.log(4 / 4) + 1), np.log(4 / 2) + 1])
    np.testing.assert_allclose(row, raw / np.linalg.norm(raw), rtol=1e-7)


def norms(rows: npt.NDArray[np.float32]) -> list[float]:
    return np.linalg.norm(rows.astype(np.float64), axis=1).round(6).tolist()


def test_no_known_word_gives_zeros() -> None:
    texts = ["", "unseen", "the!", KNOWN.words[0]]
    assert norms(ENCODERS[1].encode(texts)) == [0, 0, 0, 1]
    assert ENCODERS[0].encode(texts).sum(axis=1).tolist() == [0, 0, 0, 1]
    for encoder in ENCODERS:
        report = encoder.reports(texts)[encoder.name]
        assert report.oov_words == (("unseen", 1),)
        assert report.unknown_captions == (0, 1, 2)


@pytest.mark.parametrize("weighting", ["counts", "tfidf"])
def test_a_vocabulary_of_another_policy_is_refused(weighting: Weighting) -> None:
    with pytest.raises(EncoderError, match="differ in name, stop_words, lemmatizer"):
        BagOfWords(KNOWN, TOKENIZERS["treebank"], weighting)
    other = tfidf_tokenizer(RuleLemmatizer("toy", ["other"]))
    with pytest.raises(EncoderError, match="differ in lemmatizer"):
        BagOfWords(KNOWN, other, weighting)
