"""Figures of ranks in both directions as one flat table, and their chance levels."""

from collections import Counter

import numpy as np

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import DIRECTIONS, IN_RSUM, IN_TABLES, WITH_INTERVAL
from pipeline.retrieval.ranking.blocks import HostBlock
from pipeline.retrieval.ranking.galleries import first_captions
from pipeline.retrieval.ranking.ranks import Ranker, Ranks, rank_both_ways
from pipeline.store.packed import sorted_order

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
    counted = first_captions(embeddings, captions_per_image)
    return table_of_ranks(counted, rank(counted))


def table_of_ranks(counted: Embeddings, ranks: tuple[Ranks, Ranks]) -> Table:
    """Return the table of `recall_table` from the ranks of `rank_both_ways`, with all captions."""
    table: Table = {}
    for direction, of_direction in zip(DIRECTIONS, ranks, strict=True):
        table |= {f"{direction}_{name}": value for name, value in measures(of_direction).items()}
    table["rsum"] = sum(table[name] for name in IN_RSUM)
    table["num_images"] = len(counted.image_ids)
    table["num_captions"] = len(counted.caption_ids)
    table["captions_per_image"] = max(Counter(counted.caption_image_ids).values())
    return table


def measures(ranks: Ranks) -> Table:
    """Return the figures of every table, such as `r1` and `median_rank`, of ranks from 0."""
    return {measure.column.name: measure.of(ranks) for measure in IN_TABLES}


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


def chance(gallery: Embeddings, with_ranks: bool) -> Table:
    """Return `<figure>_chance`: exact expectations for a random order of a gallery.

    Of R@K, and `with_ranks` also of median and mean rank, and `rsum`.
    """
    of_image = Counter(Counter(gallery.caption_image_ids).values())
    queries = dict(
        zip(
            DIRECTIONS,
            ((of_image, len(gallery.caption_ids)), ({1: 1}, len(gallery.image_ids))),
            strict=True,
        )
    )
    levels = {m.name(d): of(*queries[d]) for d, m, of in _CHANCE_OF_ALL}
    if with_ranks:
        summed = sum(value for name, value in levels.items() if name in IN_RSUM)
        levels |= {m.name(d): of(*queries[d]) for d, m, of in _CHANCE_OF_RANKS}
        levels["rsum"] = summed
    return {f"{name}_chance": value for name, value in levels.items()}


_CHANCE_OF_ALL = [(d, m, m.chance) for m in WITH_INTERVAL if m.chance for d in DIRECTIONS]
_CHANCE_OF_RANKS = [
    (d, m, m.chance) for d in DIRECTIONS for m in IN_TABLES if m.chance and not m.interval
]
