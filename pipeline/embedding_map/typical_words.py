"""The words of a sentence, and those that are typical of the sentences of a group."""

import re
from collections import Counter
from collections.abc import Sequence
from math import log, sqrt

_WORD = re.compile(r"\w+(?:['’]\w+)*")

_PRIOR = 20.0
"""Sentences with the words of all groups that are added to each side."""

_LEAST = 1.96
"""Standard errors of a word's log-odds that it is above the rest's."""


def words_of(text: str) -> list[str]:
    """Return the words of a sentence in lower case: runs of letters and digits.

    An apostrophe within a word is part of it. The encoders have rules of their own; this one is
    the same for all, so that their lengths compare.
    """
    return _WORD.findall(text.lower())


def typical_words(groups: Sequence[Sequence[str]], number: int) -> list[tuple[str, ...]]:
    """Return for each group of sentences the words that it has and the others have not.

    Words are sorted by the log-odds that a sentence of the group has the word against one of the
    rest, in standard errors, with a prior of the words of all sentences (Monroe, Colaresi & Quinn
    2008, eq. 15-22). Of words that differ by a final s or es the first one stands for both; English
    function words such as "of" are left out (scikit-learn's `ENGLISH_STOP_WORDS`).

    Parameters
    ----------
    groups : the sentences of each group.
    number : of words of a group, at most.
    """
    # Here, since it takes a second to import.
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
    if not_a <= 0 or not_b <= 0:  # a word of every sentence
        return 0.0
    return (log(a / not_a) - log(b / not_b)) / sqrt(1 / a + 1 / b)


def _stem(word: str) -> str:
    """Return a word without a final s or es."""
    return re.sub("(?<=..)e?s$", "", word)
