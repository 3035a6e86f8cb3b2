"""Recall of proposals: the share of phrases with a correct box among the first N."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pipeline.datasets.phrases import RegionPhrase
from pipeline.regions.boxes import iou
from pipeline.regions.proposals import Proposals

NUMBERS = (50, 100, 200, 400)
THRESHOLD = 0.5


def proposal_recall(
    proposals: Proposals, phrases: Iterable[RegionPhrase], numbers: Sequence[int] = NUMBERS
) -> dict[str, Any]:
    """Return the recall of the first N proposals at IoU 0.5 in per cent, by N, and counts.

    A phrase is covered if a proposal has an intersection over union of at least 0.5 with any of its
    boxes: the upper bound of every R@K. Images without proposals do not cover any phrase.
    """
    by_image: dict[str, list[RegionPhrase]] = {}
    for phrase in phrases:
        by_image.setdefault(phrase.image, []).append(phrase)
    ranks = [first_right(proposals.boxes(i), of_image) for i, of_image in by_image.items()]
    first = np.concatenate(ranks) if ranks else np.zeros(0, np.int64)
    counts = np.array([proposals.count(image) for image in by_image], np.int64)
    most = int(counts.max(initial=0))
    beyond = [n for n in numbers if n >= most]
    cutoffs = [n for n in numbers if n < most] + beyond[:1]
    return {
        "phrases": len(first),
        "images": len(by_image),
        "images_without_proposals": int((counts == 0).sum()),
        "mean_proposals": round(float(counts.mean()), 2) if len(counts) else 0.0,
        **{
            f"recall_at_{n}": round(100 * float((first < n).mean()), 2) if len(first) else 0.0
            for n in cutoffs
        },
    }


def first_right(boxes: np.ndarray, phrases: Sequence[RegionPhrase]) -> np.ndarray:
    """Return the index (phrases,) int64 of the first correct box (k, 4) for each phrase.

    It is larger than any index if no box is correct.
    """
    never = np.iinfo(np.int64).max
    result = np.full(len(phrases), never, np.int64)
    for row, phrase in enumerate(phrases):
        right = (iou(boxes, np.array(phrase.boxes)) >= THRESHOLD).any(1)
        if right.any():
            result[row] = int(np.argmax(right))
    return result
