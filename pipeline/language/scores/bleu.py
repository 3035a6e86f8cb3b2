"""Corpus-level BLEU (Papineni et al. 2002), as in COCO's evaluation."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain

MAX_N = 4

Words = Sequence[str]


def ngrams_of(words: Words) -> Counter[tuple[str, ...]]:
    """Count the n-grams of a caption, of 1 to `MAX_N` words."""
    starts = (zip(*(words[k:] for k in range(n)), strict=False) for n in range(1, MAX_N + 1))
    return Counter(chain.from_iterable(starts))


def bleu(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
    """Return BLEU-1 to BLEU-4, 0 to 1, of a set of captions, each with at least one reference.

    Matches and lengths are summed over the set before division. An n-gram's matches are clipped by
    its maximum count in a reference. The brevity penalty compares the total length with that of
    each caption's closest reference, the shorter one on ties.

    Deviation: COCO's program adds 1e-15 and 1e-9 to its counts, so that a BLEU of 0 here is about
    1e-4 there if an order has no match.
    """
    counts = [bleu_counts(*of) for of in zip(captions, references, strict=True)]
    return bleu_of_counts([sum(column) for column in zip(*counts, strict=True)])


def bleu_counts(words: Words, others: Sequence[Words]) -> list[int]:
    """Return the contribution of one caption to the sums of BLEU.

    For n of 1 to `MAX_N` the matching n-grams; for each n all n-grams; the number of words; that of
    the closest reference.
    """
    most: Counter[tuple[str, ...]] = Counter()
    for other in others:
        most |= ngrams_of(other)
    matched = [0] * MAX_N
    for ngram, count in (ngrams_of(words) & most).items():
        matched[len(ngram) - 1] += count
    guessed = [max(0, len(words) - n) for n in range(MAX_N)]
    closest = min((abs(len(other) - len(words)), len(other)) for other in others)[1]
    return [*matched, *guessed, len(words), closest]


def bleu_of_counts(counts: Sequence[float]) -> list[float]:
    """Return BLEU-1 to BLEU-4 from the summed `bleu_counts` of a set; 0 for an empty one."""
    if not counts:
        return [0.0] * MAX_N
    *ngrams, length, closest = counts
    if not length:
        return [0.0] * MAX_N
    brevity = min(1.0, math.exp(1 - closest / length))
    scores, product = [], 1.0
    for n, (matched, guessed) in enumerate(zip(ngrams[:MAX_N], ngrams[MAX_N:], strict=True), 1):
        product *= matched / guessed if guessed else 0.0
        scores.append(brevity * product ** (1 / n))
    return scores
