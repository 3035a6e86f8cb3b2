"""Recall@K, median and mean rank in both directions, as one flat table; what chance would give."""

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranks import Ranker, Ranks, rank_both_ways

CUTOFFS = (1, 5, 10)
DIRECTIONS = ("image_to_text", "text_to_image")
MEASURES = (*(f"r{k}" for k in CUTOFFS), "median_rank", "mean_rank")


def recall_table(
    embeddings: Embeddings, captions_per_image: int | None = 5, rank: Ranker = rank_both_ways
) -> dict[str, float | int]:
    """Evaluate retrieval in both directions (protocol of VSE++, SCAN and their successors).

    R@K is the percentage of queries whose rank, counted from 0, is below K; the median rank is
    the floor of the ranks' median plus 1, the mean rank their mean plus 1. An image query counts
    its best caption. `rsum` is the sum of the six R@K.

    Parameters
    ----------
    embeddings : images may have different numbers of captions.
    captions_per_image : the first so many captions of each image count, both as queries and in
        the gallery; None counts all. See `first_captions`.
    rank : what ranks; `pipeline.retrieval.on_device.rank_on` gives one for a GPU.

    Returns
    -------
    dict
        `image_to_text_*` and `text_to_image_*` with `r1`, `r5`, `r10` (percentages 0-100),
        `median_rank` and `mean_rank` (from 1); `rsum`; `num_images`; `num_captions` that
        counted; `captions_per_image`, the most that counted for any image.
    """
    counted = embeddings
    if captions_per_image is not None:
        counted = first_captions(embeddings, captions_per_image)
    return table_of_ranks(counted, rank(counted))


def table_of_ranks(counted: Embeddings, ranks: tuple[Ranks, Ranks]) -> dict[str, float | int]:
    """Return the table of `recall_table` from the ranks of `rank_both_ways`; all captions count."""
    table: dict[str, float | int] = {}
    for direction, found in zip(DIRECTIONS, ranks, strict=True):
        table |= {f"{direction}_{name}": value for name, value in measures(found).items()}
    table["rsum"] = sum(table[f"{d}_r{k}"] for d in DIRECTIONS for k in CUTOFFS)
    table["num_images"] = len(counted.image_ids)
    table["num_captions"] = len(counted.caption_ids)
    table["captions_per_image"] = max(Counter(counted.caption_image_ids).values())
    return table


def measures(ranks: Ranks) -> dict[str, float | int]:
    """Return `r1`, `r5`, `r10`, `median_rank` and `mean_rank` of ranks counted from 0."""
    values: dict[str, float | int] = {
        f"r{k}": 100.0 * int(np.count_nonzero(ranks < k)) / len(ranks) for k in CUTOFFS
    }
    values["median_rank"] = int(np.floor(np.median(ranks))) + 1
    values["mean_rank"] = float(np.mean(ranks)) + 1.0
    return values


def mean_inverted_rank(ranks: Ranks) -> float:
    """Return the mean over the queries of 1 / (rank from 1), 0-1, of ranks counted from 0.

    "Mean Inverted Rank (MIR) at which the annotated item is found" (Dong et al. 2018, on TrecVid
    2016). There each query has one annotated item; where it has several, the best counts here.
    """
    return float(np.mean(1.0 / (ranks + 1)))


def chance(captions: Embeddings) -> dict[str, float]:
    """Return the expected R@K, 0-100, of a gallery in random order: `image_to_text_r1` and so on.

    An image with c of the C captions finds one among the first K with probability
    1 - binomial(C - c, K) / binomial(C, K); a caption finds its image, one of N, with K / N.
    """
    of_image = Counter(captions.caption_image_ids)
    num_images, num_captions = len(of_image), len(captions.caption_ids)
    levels: dict[str, float] = {}
    for k in CUTOFFS:
        missed = sum(
            images * Fraction(comb(num_captions - c, k), max(1, comb(num_captions, k)))
            for c, images in Counter(of_image.values()).items()
        )
        levels[f"{DIRECTIONS[0]}_r{k}"] = float(100 * (1 - missed / num_images))
        levels[f"{DIRECTIONS[1]}_r{k}"] = 100.0 * min(k, num_images) / num_images
    return levels


def first_captions(embeddings: Embeddings, number: int) -> Embeddings:
    """Keep the first `number` captions of every image, in the order of the rows.

    First by caption number where all of an image's captions are called `<image id>#<number>`,
    as this project names them; otherwise by their order in the file. Embeddings that have no
    more are returned as they are, not copied.

    Raises
    ------
    ValueError
        `number` is below 1.
    """
    if number < 1:
        raise ValueError(f"captions per image must be at least 1, {number} given")
    of_image: dict[str, list[int]] = defaultdict(list)
    for row, image_id in enumerate(embeddings.caption_image_ids):
        of_image[image_id].append(row)
    kept: list[int] = []
    for image_id, rows in of_image.items():
        numbers = [_number(embeddings.caption_ids[row], image_id) for row in rows]
        if None not in numbers:
            rows = [row for _, row in sorted(zip(numbers, rows, strict=True))]
        kept += rows[:number]
    if len(kept) == len(embeddings.caption_ids):
        return embeddings
    kept.sort()
    return replace(
        embeddings,
        caption_ids=tuple(embeddings.caption_ids[row] for row in kept),
        caption_image_ids=tuple(embeddings.caption_image_ids[row] for row in kept),
        caption_embeddings=embeddings.caption_embeddings[kept],
    )


def _number(caption_id: str, image_id: str) -> int | None:
    start, _, number = caption_id.rpartition("#")
    return int(number) if start == image_id and number.isdecimal() else None
