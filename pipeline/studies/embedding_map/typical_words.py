"""Words of a sentence, and typical words of groups of sentences."""

import re
from collections import Counter
from collections.abc import Sequence
from math import log, sqrt

# An apostrophe within a word is part of it.
_WORD = re.compile(r"\w+(?:['’]\w+)*")

_PRIOR = 20.0  # pseudo-count of sentences with the overall word frequencies, added to each side
_LEAST = 1.96  # minimal z-score of a word's log-odds against the rest


def words_of(text: str) -> list[str]:
    """Return the words of a sentence in lower case, by one rule for all encoders."""
    return _WORD.findall(text.lower())


def typical_words(groups: Sequence[Sequence[str]], number: int) -> list[tuple[str, ...]]:
    """Return at most `number` words per group of sentences that distinguish it from the others."""
    # Imported here because it takes a second.
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts = [Counter(word for text in texts for word in set(words_of(text))) for texts in groups]
    everywhere = sum(counts, Counter[str]())
    sentences = sum(map(len, groups))
    typical = []
    for count, texts in zip(counts, groups, strict=True):
        scores = {
            word: _log_odds(
                count[word], len(texts), everywhere[word] - count[word], sentences - len(texts),
                _PRIOR * everywhere[word] / sentences,
            )
            for word in count.keys() - ENGLISH_STOP_WORDS
        }  # fmt: skip
        telling = sorted((w for w in scores if scores[w] > _LEAST), key=lambda w: (-scores[w], w))
        by_stem: dict[str, str] = {}
        for word in telling:
            by_stem.setdefault(_stem(word), word)
        typical.append(tuple(by_stem.values())[:number])
    return typical


def _log_odds(count: int, texts: int, other: int, others: int, prior: float) -> float:
    """Return the difference of two log-odds in standard errors."""
    # With an informative prior from all sentences (Monroe, Colaresi & Quinn 2008, eq. 15-22).
    a, b = count + prior, other + prior
    not_a, not_b = texts + _PRIOR - a, others + _PRIOR - b
    if not_a <= 0 or not_b <= 0:  # a word in every sentence
        return 0.0
    return (log(a / not_a) - log(b / not_b)) / sqrt(1 / a + 1 / b)


def _stem(word: str) -> str:
    return re.sub("(?<=..)e?s$", "", word)
