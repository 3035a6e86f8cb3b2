"""Recall@K, median and mean rank in both directions, as one flat table, and their chance levels."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from math import comb

import numpy as np

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.blocks import HostBlock
from pipeline.retrieval.ranking.galleries import first_captions
from pipeline.retrieval.ranking.ranks import Ranker, Ranks, rank_both_ways
from pipeline.store.packed import sorted_order

CUTOFFS = (1, 5, 10)
DIRECTIONS = ("image_to_text", "text_to_image")
MEASURES = (*(f"r{k}" for k in CUTOFFS), "median_rank", "mean_rank")

Table = dict[str, float | int]
"""Figures by their names in `recall_table`."""


def recall_table(
    embeddings: Embeddings, captions_per_image: int | None = 5, rank: Ranker = rank_both_ways
) -> Table:
    """Evaluate retrieval in both directions (protocol of VSE++, SCAN and their successors).

    R@K is the percentage of queries whose rank, counted from 0, is below K; the median rank is the
    floor of the ranks' median plus 1, the mean rank their mean plus 1. An image query is ranked by
    its best caption. `rsum` is the sum of the six R@K. Captions beyond the first
    `captions_per_image` of an image are neither queries nor in the gallery; None: all count.
    """
    counted = (
        embeddings if captions_per_image is None else first_captions(embeddings, captions_per_image)
    )
    return table_of_ranks(counted, rank(counted))


def table_of_ranks(counted: Embeddings, ranks: tuple[Ranks, Ranks]) -> Table:
    """Return the table of `recall_table` from the ranks of `rank_both_ways`, with all captions."""
    table: Table = {}
    for direction, of_direction in zip(DIRECTIONS, ranks, strict=True):
        table |= {f"{direction}_{name}": value for name, value in measures(of_direction).items()}
    table["rsum"] = sum(table[f"{d}_r{k}"] for d in DIRECTIONS for k in CUTOFFS)
    table["num_images"] = len(counted.image_ids)
    table["num_captions"] = len(counted.caption_ids)
    table["captions_per_image"] = max(Counter(counted.caption_image_ids).values())
    return table


def measures(ranks: Ranks) -> Table:
    """Return `r1`, `r5`, `r10`, `median_rank` and `mean_rank` for ranks counted from 0."""
    values: Table = {
        f"r{k}": 100.0 * int(np.count_nonzero(ranks < k)) / len(ranks) for k in CUTOFFS
    }
    values["median_rank"] = int(np.floor(np.median(ranks))) + 1
    values["mean_rank"] = float(np.mean(ranks)) + 1.0
    return values


def mean_inverted_rank(ranks: Ranks) -> float:
    """Return the mean over the queries of 1 / (rank from 1), 0-1, for ranks counted from 0."""
    # "Mean Inverted Rank (MIR) at which the annotated item is found" (Dong et al. 2018, on TrecVid
    # 2016), which has one annotated item per query; of several, the best is used here.
    return float(np.mean(1.0 / (ranks + 1)))


def mean_average_precision(e: Embeddings, images_at_once: int = 256) -> float:
    """Return the mean average precision of image queries, 0-100.

    The average precision of a query is the mean over its captions of the precision at their ranks.
    Equal captions are in the order of their ids, as in `rank_both_ways`.
    """
    order = sorted_order(e.caption_ids)
    captions, image_of_caption = e.caption_embeddings[order], e.image_of_caption[order]
    places, total = np.arange(1, len(order) + 1), 0.0
    for start in range(0, len(e.captioned), images_at_once):
        images = e.captioned[start : start + images_at_once]
        scores = HostBlock.of(e.similarity, e.image_embeddings[images], captions).scores
        best_first = np.argsort(-scores, axis=1, kind="stable")
        hit = image_of_caption[best_first] == images[:, None]
        precision = np.cumsum(hit, axis=1) / places
        total += float(((precision * hit).sum(axis=1) / hit.sum(axis=1)).sum())
    return 100.0 * total / len(e.captioned)


def chance(captions: Embeddings) -> dict[str, float]:
    """Return the expected R@K, 0-100, of a random order of a gallery: `image_to_text_r1` etc.

    An image with c of the C captions finds one among the first K with probability
    1 - binomial(C - c, K) / binomial(C, K); a caption finds its image, one of N, with K / N.
    """
    of_image = Counter(captions.caption_image_ids)
    num_queries, num_captions = len(of_image), len(captions.caption_ids)
    num_images = len(captions.image_ids)
    levels: dict[str, float] = {}
    for k in CUTOFFS:
        missed = sum(
            images * Fraction(comb(num_captions - c, k), max(1, comb(num_captions, k)))
            for c, images in Counter(of_image.values()).items()
        )
        levels[f"{DIRECTIONS[0]}_r{k}"] = float(100 * (1 - missed / num_queries))
        levels[f"{DIRECTIONS[1]}_r{k}"] = 100.0 * min(k, num_images) / num_images
    return levels


def chance_ranks(captions: Embeddings) -> dict[str, float]:
    """Return the expected median and mean rank, from 1, of a random order in both directions.

    An image with c of the C captions has its first one at rank (C + 1) / (c + 1) on average, and
    none among the first r with probability binomial(C - c, r) / binomial(C, r); a caption has its
    image at any of N ranks. The median is the smallest rank that half of the queries reach.
    """
    of_image = Counter(captions.caption_image_ids)
    images, total = len(captions.image_ids), len(captions.caption_ids)
    alike = Counter(of_image.values())
    mean = sum(n * Fraction(total + 1, c + 1) for c, n in alike.items()) / len(of_image)
    to_text, to_image = DIRECTIONS
    return {
        f"{to_text}_median_rank": _chance_median(alike, total),
        f"{to_text}_mean_rank": float(mean),
        f"{to_image}_median_rank": _chance_median({1: 1}, images),
        f"{to_image}_mean_rank": (images + 1) / 2,
    }


def _chance_median(alike: Mapping[int, int], total: int) -> int:
    """Return the median rank, from 1, of queries with given numbers of correct items in `total`."""
    missing = {right: Fraction(1) for right in alike}
    rank, half = 0, Fraction(sum(alike.values()), 2)
    while sum(number * missing[right] for right, number in alike.items()) > half:
        for right in missing:
            missing[right] *= Fraction(total - right - rank, total - rank)
        rank += 1
    return rank
