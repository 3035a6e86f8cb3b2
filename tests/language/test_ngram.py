"""Modified Kneser-Ney: a worked example by hand, and a second implementation by dictionaries."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pipeline.language import LanguageError
from pipeline.language.ngram import FALLBACK, NGramModel, discounts, fit_ngrams
from pipeline.text.encoders.token_ids import END, PADDING, START

A, B, C = 4, 5, 6


def rows(*sentences: list[int]) -> np.ndarray:
    length = max(map(len, sentences)) + 1
    return np.array([[*s, END] + [PADDING] * (length - 1 - len(s)) for s in sentences])


def corpus(number: int, words: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 8, number)
    return [(4 + rng.zipf(1.7, n) % words).tolist() for n in lengths]


def next_words(model: NGramModel, context: list[int]) -> np.ndarray:
    """Return P(word), (vocab_size,), after token ids."""
    ids, seen = np.arange(model.vocab_size), context[context[0] == START :]
    ends = np.column_stack([np.tile(np.array(seen, np.int64), (len(ids), 1)), ids])
    # A word of padding has no probability, but 0 as the logarithm in a sum.
    return np.where(ids == PADDING, 0, np.exp(model.sentence_log_probabilities(ends)[:, -1]))


def test_bigrams_by_hand() -> None:
    """Sentences "a b", "a c", "a b": discounts fall back to 1/2, 1, 3/2.

    Bigrams: (<s> a) 3, (a b) 2, (a c) 1, (b </s>) 2, (c </s>) 1. Distinct words before: a 1, b 1,
    c 1, </s> 2; in all 5. Unigrams: what is taken is 3 times 1/2 and once 1, a half of 5, spread
    over 5 words (the unknown word among them): each gets 1/10.
    """
    model = fit_ngrams(rows([A, B], [A, C], [A, B]), 7, order=2)
    unigram = {1: 0.1, A: 0.5 / 5 + 0.1, B: 0.2, C: 0.2, END: 1 / 5 + 0.1}
    alone = np.exp(model.log_probabilities[0])
    assert alone == pytest.approx([0, 0.1, 0, 0.3, 0.2, 0.2, 0.2])
    # After a: (2 - 1) / 3 and (1 - 1/2) / 3 are kept, 1/2 is left.
    after = next_words(model, [START, A])
    assert after[B] == pytest.approx(1 / 3 + unigram[B] / 2)
    assert after[C] == pytest.approx(1 / 6 + unigram[C] / 2)
    assert after[END] == pytest.approx(unigram[END] / 2)
    assert after[1] == pytest.approx(0.05)


def test_discounts_by_hand() -> None:
    counts = np.array([1] * 8 + [2] * 4 + [3] * 2 + [4] + [9])
    share = 8 / 16
    assert discounts(counts) == pytest.approx((1 - 2 * share / 2, 2 - 3 * share / 2, 3 - 2 * share))
    assert discounts(np.array([1, 2, 7])) == FALLBACK


class Plain:
    """The equations of Chen & Goodman 1999, by recursion over dictionaries."""

    def __init__(self, sentences: list[list[int]], vocab_size: int, order: int) -> None:
        self.vocab_size, self.order = vocab_size, order
        begun = [(START, *sentence, END) for sentence in sentences]
        raw = [
            Counter(s[i : i + n] for s in begun for i in range(len(s) - n + 1))
            for n in range(1, order + 1)
        ]
        self.counts: list[dict[tuple[int, ...], int]] = []
        for n in range(1, order + 1):
            own = dict(raw[n - 1])
            if n < order:
                before = Counter(longer[1:] for longer in raw[n])
                own = {g: before[g] if g[0] != START else c for g, c in own.items()}
            if n == 1:
                del own[(START,)]
            self.counts.append(own)
        self.taken = [discounts(np.array([*own.values()])) for own in self.counts]

    def p(self, context: tuple[int, ...], word: int) -> float:
        n = len(context) + 1
        lower = self.p(context[1:], word) if n > 1 else 1 / (self.vocab_size - 2)
        following = {g[-1]: c for g, c in self.counts[n - 1].items() if g[:-1] == context}
        if not following:
            return lower
        taken = [self.taken[n - 1][min(c, 3) - 1] for c in following.values()]
        count, total = following.get(word, 0), sum(following.values())
        own = count - self.taken[n - 1][min(count, 3) - 1] if count else 0
        return own / total + sum(taken) / total * lower


@pytest.mark.parametrize(
    ("number", "words", "order"), [(60, 9, 3), (40, 5, 2), (9, 4, 1), (1, 3, 3)]
)
def test_equals_a_second_implementation_and_sums_to_one(
    number: int, words: int, order: int, tmp_path: Path
) -> None:
    sentences = [*corpus(number, words), [A]]
    size = 4 + words + 1  # a word that never occurs
    fit_ngrams(rows(*sentences), size, order).save(tmp_path / "ngrams.safetensors")
    model = NGramModel.load(tmp_path / "ngrams.safetensors")
    plain = Plain(sentences, size, order)
    contexts = [[START], [START, A], [A, B, C], [size - 1], [C, size - 1, A]]
    for context in contexts:
        found = next_words(model, context)
        assert math.fsum(found) == pytest.approx(1, abs=1e-12)
        seen = tuple(context[max(0, len(context) - order + 1) :]) if order > 1 else ()
        expected = [plain.p(seen, word) for word in range(1, size) if word != START]
        assert np.delete(found, [PADDING, START]) == pytest.approx(expected, rel=1e-9)
    held_out = [*corpus(7, words, seed=1), []]
    scored = model.sentence_log_probabilities(rows(*held_out))
    for row, sentence in zip(scored, held_out, strict=True):
        whole = [START, *sentence, END]
        expected = [
            math.log(next_words(model, whole[: at + 1])[word])
            for at, (_, word) in enumerate(pairwise(whole))
        ]
        assert row[: len(expected)] == pytest.approx(expected)
        assert not row[len(expected) :].any()


def test_what_cannot_be_counted(tmp_path: Path) -> None:
    for sentences in (rows([], []), np.zeros((0, 4), np.int64)):
        with pytest.raises(LanguageError, match=rf"none of {len(sentences)} sentences has a word"):
            fit_ngrams(sentences, 7)
    with pytest.raises(LanguageError, match="too large for n-grams of 3"):
        fit_ngrams(rows([A]), 3_000_000)
    (tmp_path / "other").write_bytes(b"1234567890")
    with pytest.raises(LanguageError, match="damaged or not an n-gram model"):
        NGramModel.load(tmp_path / "other")
