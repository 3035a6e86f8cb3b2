"""Consensus of candidate captions with the captions of similar training images.

Devlin et al. 2015 (arXiv:1505.04467): the best caption of an image is the one most
similar to all captions of its nearest training images. Deviations: the similarity is CIDEr, without
the clipping and the length penalty of CIDEr-D; nearer images count more; all captions count, not
only those that agree best; and the candidates need not be those captions.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.datasets.entries import PackedEntries
from pipeline.language import LanguageError
from pipeline.language.score_captions import RankingHead
from pipeline.language.scores.bleu import MAX_N, ngrams_of
from pipeline.language.scores.cider import NgramWeights, Weights
from pipeline.language.scores.table import TOKENIZER
from pipeline.retrieval.search import Gallery, nearest

NEIGHBOURS = 60
"""Default number of training images, tuned on Flickr8k's dev images."""

_TEMPERATURE = 0.1
"""An image counts as exp(cosine / temperature), tuned on the same images."""


@dataclass(frozen=True)
class Training:
    """Training images whose captions are references, and how much they count."""

    entries: PackedEntries
    weight: float  # of the consensus
    neighbours: int = NEIGHBOURS  # images per described image


def consensus(
    head: RankingHead, training: Training, images: Sequence[str], texts: Sequence[Sequence[str]]
) -> list[list[float]]:
    """Return the consensus, 0 to 1, of each image's texts with captions of its neighbours.

    An image, by id, is not its own neighbour. The mean similarity with several captions is the
    product with the mean of their unit vectors, one for each order of n-grams.
    """
    given = {*images}
    usable = head.with_features(training.entries)
    entries = [entry for entry in usable if entry.id not in given and entry.captions]
    if not entries:
        raise LanguageError(
            "no other training image with captions and features is left, so there is no consensus; "
            "set its weight to 0"
        )
    counted = [[ngrams_of(TOKENIZER.tokenize(t)) for t in entry.captions] for entry in entries]
    weights = NgramWeights(counted)
    # Per image the sum of the vectors of its captions.
    sums = [_sum((1.0, _unit(*weights.of(counts))) for counts in of_image) for of_image in counted]
    numbers = np.array([len(of_image) for of_image in counted])
    ids = [entry.id for entry in entries]
    gallery = Gallery("images", ids, head.points(ids).astype(np.float32), "cosine")
    described = head.points(images).astype(np.float32)
    hits = nearest(gallery, described, "images", training.neighbours)
    of_texts: dict[str, Weights] = {}
    scores = []
    for rows, cosines, candidates in zip(hits.rows, hits.scores, texts, strict=True):
        counts = np.exp((cosines.astype(np.float64) - cosines[0]) / _TEMPERATURE)
        whole = _sum((count, sums[row]) for count, row in zip(counts.tolist(), rows, strict=True))
        number = float(counts @ numbers[rows])
        for text in candidates:
            if text not in of_texts:
                of_texts[text] = _unit(*weights.of(ngrams_of(TOKENIZER.tokenize(text))))
        scores.append(
            [
                sum(weight * whole.get(ngram, 0.0) for ngram, weight in of_texts[text].items())
                / (MAX_N * number)
                for text in candidates
            ]
        )
    return scores


def _unit(weights: Weights, norms: Sequence[float]) -> Weights:
    """Return weights divided by the norm of their order; n-grams of all images have none."""
    return {g: weight / norms[len(g) - 1] for g, weight in weights.items() if norms[len(g) - 1]}


def _sum(vectors: Iterable[tuple[float, Weights]]) -> Weights:
    """Return the sum of vectors, each times its count."""
    total: dict[tuple[str, ...], float] = defaultdict(float)
    for count, vector in vectors:
        for ngram, weight in vector.items():
            total[ngram] += count * weight
    return dict(total)
