"""CIDEr-D (Vedantam et al. 2015): n-gram similarity weighted by inverse document frequency."""

import math
from collections import Counter
from collections.abc import Sequence

from pipeline.language.scores.bleu import MAX_N, Words, ngrams_of

SIGMA = 6.0
"""Standard deviation of the length penalty, in words."""

Weights = dict[tuple[str, ...], float]
_Counts = Counter[tuple[str, ...]]


class NgramWeights:
    """Weights of n-grams: their count times log(images / images whose captions have them)."""

    def __init__(self, counted: Sequence[Sequence[_Counts]]) -> None:
        """Count the images with each n-gram, from the n-grams of each image's captions."""
        self._images_with: _Counts = Counter()
        for of_image in counted:
            self._images_with.update(set().union(*of_image))
        self._log_images = math.log(len(counted)) if counted else 0.0

    def of(self, counts: _Counts) -> tuple[Weights, list[float]]:
        """Return the weight of each n-gram of a caption, and the norm of those of each order."""
        weights = {
            ngram: count * (self._log_images - math.log(max(1, self._images_with[ngram])))
            for ngram, count in counts.items()
        }
        squares = [0.0] * MAX_N
        for ngram, weight in weights.items():
            squares[len(ngram) - 1] += weight**2
        return weights, [math.sqrt(square) for square in squares]


def cider_d(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
    """Return CIDEr-D, 0 to 10, of each caption, called CIDEr in COCO's evaluation.

    An n-gram's weight is log(images / images whose references have it), so scores are comparable
    only within one set of images. Lengths are counted in word pairs, as in the authors' program: a
    caption of one word has length 0.
    """
    counted = [[ngrams_of(other) for other in others] for others in references]
    weighted = NgramWeights(counted)
    scores = []
    for words, others, of_image in zip(captions, references, counted, strict=True):
        weights, own_norms = weighted.of(ngrams_of(words))
        total = 0.0
        for other, counts in zip(others, of_image, strict=True):
            theirs, norms = weighted.of(counts)
            products = [0.0] * MAX_N
            for ngram in (ngram for ngram in weights if ngram in theirs):
                # Clipped, so that repeating an n-gram of the reference does not pay.
                products[len(ngram) - 1] += min(weights[ngram], theirs[ngram]) * theirs[ngram]
            similarity = sum(
                product / (a * b) if a and b else 0.0
                for product, a, b in zip(products, own_norms, norms, strict=True)
            )
            difference = max(0, len(words) - 1) - max(0, len(other) - 1)
            total += similarity * math.exp(-(difference**2) / (2 * SIGMA**2))
        scores.append(10 * total / MAX_N / len(others))
    return scores
