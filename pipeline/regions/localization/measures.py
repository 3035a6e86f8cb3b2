"""Metrics of ranked proposals: recall at K, average precision, the pointing game.

A proposal is correct if its intersection over union with a true box of its query is at least 0.5. A
query may have several true boxes (a dataset prepared with `any`; the default is their hull): one of
them is enough for recall and pointing game, and each counts for average precision. Ties are broken
by the order of the method.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeline.regions.boxes import areas, iou
from pipeline.regions.localization.localized import Localized, Scores
from pipeline.store.shards.row_keys import RowNumbers

IOU = 0.5
NMS = 0.3
"""Threshold of the non-maximum suppression before average precision.

The paper does not state it; 0.3 is that of Fast R-CNN's program."""

NO_HIT = np.iinfo(np.int64).max
"""Rank of the first correct proposal if there is none."""

Scoring = Callable[[int, RowNumbers], Scores]
"""Function from an image's row and some of its queries to scores (proposals, queries)."""


@dataclass(frozen=True, eq=False)
class Ranked:
    """Result of each query."""

    first_hit: RowNumbers  # (queries,), rank of the first correct proposal, from 0, or `NO_HIT`
    pointed: npt.NDArray[np.bool_]  # (queries,), whether the centre of the first is in a true box
    best: RowNumbers  # (queries,), number in its image of the first proposal; -1 without


def by_head(localized: Localized) -> Scoring:
    """Return the scoring by the head's embeddings."""
    phrase = localized.query_phrase
    return lambda image, queries: localized.scores(image, localized.phrases[phrase[queries]])


def by_area(localized: Localized) -> Scoring:
    """Return the scoring by area, the largest proposal first."""

    def scores(image: int, queries: RowNumbers) -> Scores:
        sizes: Scores = areas(localized.boxes[localized.regions_of(image)])
        return np.repeat(sizes[:, None], len(queries), axis=1)

    return scores


def by_method(localized: Localized) -> Scoring:
    """Return the scoring that keeps the order of the method."""

    def scores(image: int, queries: RowNumbers) -> Scores:
        rows = localized.regions_of(image)
        return np.zeros((rows.stop - rows.start, len(queries)))

    return scores


def hits(localized: Localized, image: int, queries: RowNumbers) -> npt.NDArray[np.bool_]:
    """Return which proposals of an image are correct for some of its queries, (proposals, q)."""
    boxes = localized.boxes[localized.regions_of(image)]
    correct = np.zeros((len(boxes), len(queries)), bool)
    for column, query in enumerate(queries):
        truth = localized.truth_of(int(query))
        if len(truth) and len(boxes):
            correct[:, column] = (iou(boxes, truth) >= IOU).any(axis=1)
    return correct


def rank(localized: Localized, scoring: Scoring) -> Ranked:
    """Rank the proposals of every query's image."""
    number = len(localized.query_ids)
    first_hit = np.full(number, NO_HIT, np.int64)
    pointed, best = np.zeros(number, bool), np.full(number, -1, np.int64)
    for image, queries in enumerate(localized.queries_of_image):
        boxes = localized.boxes[localized.regions_of(image)]
        if not (len(boxes) and len(queries)):
            continue
        order = np.argsort(-scoring(image, queries), axis=0, kind="stable")
        right = np.take_along_axis(hits(localized, image, queries), order, axis=0)
        first_hit[queries] = np.where(right.any(axis=0), right.argmax(axis=0), NO_HIT)
        best[queries] = order[0]
        for query, box in zip(queries, boxes[order[0]], strict=True):
            pointed[query] = points_into(box, localized.truth_of(int(query)))
    return Ranked(first_hit, pointed, best)


def points_into(box: npt.NDArray[np.float32], truth: npt.NDArray[np.float32]) -> bool:
    """Return whether the centre of a box (4,) is in one of (n, 4) boxes."""
    centre = (box[:2] + box[2:]) / 2
    return bool(((truth[:, :2] <= centre) & (centre < truth[:, 2:])).all(axis=1).any())


def rank_whole_image(localized: Localized) -> Ranked:
    """Rank the whole image as the single proposal of every query."""
    number = len(localized.image_ids)
    whole = np.column_stack([np.zeros((number, 2)), localized.sizes]).astype(np.float32)
    of_images = replace(localized, boxes=whole, first_region=np.arange(number + 1))
    return rank(of_images, by_method(of_images))


def average_precisions(localized: Localized, scoring: Scoring, threshold: float = NMS) -> Scores:
    """Return the average precision (phrases,) of each phrase over its images; NaN if not queried.

    In each image the proposals are reduced by non-maximum suppression, then those of all the
    phrase's images are ranked together. In rank order a proposal is correct if the true box with
    the largest overlap, at least 0.5, has not been found yet. The area is that under the
    interpolated precision-recall curve (PASCAL VOC from 2010 on). Equal true boxes of an image
    count once.
    """
    scores: list[list[Scores]] = [[] for _ in localized.phrase_texts]
    right: list[list[npt.NDArray[np.bool_]]] = [[] for _ in localized.phrase_texts]
    truths = np.zeros(len(localized.phrase_texts), np.int64)
    for _, phrase, query_scores, truth, overlap in ranked_per_phrase(localized, scoring, threshold):
        truths[phrase] += len(truth)
        if len(query_scores):
            scores[phrase].append(query_scores)
            right[phrase].append(claims(overlap))
    return np.array(
        [
            average_precision(np.concatenate(s), np.concatenate(r), n)
            if s
            else (0.0 if n else np.nan)
            for s, r, n in zip(scores, right, truths.tolist(), strict=True)
        ]
    )


def ranked_per_phrase(
    localized: Localized, scoring: Scoring, threshold: float
) -> Iterator[tuple[int, int, Scores, Scores, Scores]]:
    """Yield image, phrase, scores after suppression, true boxes and overlaps, best box first."""
    for image, queries in enumerate(localized.queries_of_image):
        if not len(queries):
            continue
        phrases, first = np.unique(localized.query_phrase[queries], return_index=True)
        boxes = localized.boxes[localized.regions_of(image)]
        scores = scoring(image, queries[first])
        order = np.argsort(-scores, axis=0, kind="stable")
        survives = suppressed(iou(boxes, boxes) > threshold, order)
        for column, phrase in enumerate(phrases):
            same_phrase = queries[localized.query_phrase[queries] == phrase]
            truth = np.unique(
                np.concatenate([localized.truth_of(int(query)) for query in same_phrase]), axis=0
            )
            rows = order[survives[:, column], column]
            yield image, int(phrase), scores[rows, column], truth, iou(boxes[rows], truth)


def suppressed(overlapping: npt.NDArray[np.bool_], order: RowNumbers) -> npt.NDArray[np.bool_]:
    """Return the ranks (n, q) bool that greedy non-maximum suppression keeps.

    Of each of several orders (n, q) of the boxes; `overlapping` (n, n) are those that overlap more
    than the threshold.
    """
    columns = np.arange(order.shape[1])
    # One pass over ranks for all queries.
    alive = np.ones((len(overlapping), len(columns)), bool)
    survives = np.zeros_like(alive)
    for position, boxes in enumerate(order):
        survives[position] = alive[boxes, columns]
        alive &= ~(overlapping[boxes].T & survives[position])
    return survives


def claims(overlap: Scores) -> npt.NDArray[np.bool_]:
    """Return which boxes, best first, match a true box that no earlier one matched, by overlap."""
    right = np.zeros(len(overlap), bool)
    matched: set[int] = set()
    for row in np.flatnonzero((overlap >= IOU).any(axis=1)):
        nearest = int(overlap[row].argmax())
        right[row] = nearest not in matched
        matched.add(nearest)
    return right


def average_precision(scores: Scores, right: npt.NDArray[np.bool_], truths: int) -> float:
    """Return the area under the interpolated precision-recall curve of `scores` (n,).

    `right` (n,) are those that match one of `truths` true boxes; ties keep their order.
    """
    ordered = right[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
    falling = np.maximum.accumulate(precision[::-1])[::-1]
    return float(falling[ordered].sum() / truths)
