"""Words of a sentence, and typical words of groups of sentences."""

import re
from collections import Counter
from collections.abc import Sequence
from math import log, sqrt

_WORD = re.compile(r"\w+(?:['’]\w+)*")

_PRIOR = 20.0
"""Pseudo-count of sentences with the overall word frequencies, added to each side."""

_LEAST = 1.96
"""Minimal z-score of a word's log-odds against the rest."""


def words_of(text: str) -> list[str]:
    """Return the words of a sentence in lower case: runs of letters and digits.

    An apostrophe within a word is part of it. Unlike the tokenizers of the encoders, this rule is
    the same for all, so that lengths are comparable.
    """
    return _WORD.findall(text.lower())


def typical_words(groups: Sequence[Sequence[str]], number: int) -> list[tuple[str, ...]]:
    """Return the words that distinguish each group of sentences from the others.

    Words are sorted by the log-odds that a sentence of the group has the word versus one of the
    rest, in standard errors, with a prior from all sentences (Monroe, Colaresi & Quinn 2008, eq.
    15-22). Of words that differ by a final s or es only the first is listed; English function words
    such as "of" are skipped (scikit-learn's `ENGLISH_STOP_WORDS`).

    Parameters
    ----------
    groups : sequence of sequence of str. Sentences of each group.
    number : int. Maximal number of words per group.
    """
    # Imported here because it takes a second.
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts = [Counter(word for text in texts for word in set(words_of(text))) for texts in groups]
    everywhere = sum(counts, Counter[str]())
    sentences = sum(map(len, groups))
    found = []
    for own, texts in zip(counts, groups, strict=True):
        scores = {
            word: _log_odds(
                own[word], len(texts), everywhere[word] - own[word], sentences - len(texts),
                _PRIOR * everywhere[word] / sentences,
            )
            for word in own.keys() - ENGLISH_STOP_WORDS
        }  # fmt: skip
        telling = sorted((w for w in scores if scores[w] > _LEAST), key=lambda w: (-scores[w], w))
        kept: dict[str, str] = {}
        for word in telling:
            kept.setdefault(_stem(word), word)
        found.append(tuple(kept.values())[:number])
    return found


def _log_odds(own: int, texts: int, other: int, others: int, prior: float) -> float:
    """Return the difference of two log-odds in standard errors."""
    a, b = own + prior, other + prior
    not_a, not_b = texts + _PRIOR - a, others + _PRIOR - b
    if not_a <= 0 or not_b <= 0:  # a word in every sentence
        return 0.0
    return (log(a / not_a) - log(b / not_b)) / sqrt(1 / a + 1 / b)


def _stem(word: str) -> str:
    """Return a word without a final s or es."""
    return re.sub("(?<=..)e?s$", "", word)
