"""Recall@K, median and mean rank in both directions, as one flat table."""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranks import Ranks, image_to_text, text_to_image

CUTOFFS = (1, 5, 10)
DIRECTIONS = ("image_to_text", "text_to_image")
MEASURES = (*(f"r{k}" for k in CUTOFFS), "median_rank", "mean_rank")


def recall_table(
    embeddings: Embeddings, captions_per_image: int | None = 5
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
    table: dict[str, float | int] = {}
    for direction, ranks in zip(
        DIRECTIONS, (image_to_text(counted), text_to_image(counted)), strict=True
    ):
        table |= {f"{direction}_{name}": value for name, value in measures(ranks).items()}
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


def first_captions(embeddings: Embeddings, number: int) -> Embeddings:
    """Keep the first `number` captions of every image, in the order of the rows.

    First by caption number where all of an image's captions are called `<image id>#<number>`,
    as this project names them; otherwise by their order in the file.

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
