"""Exact ranks by id of the correct item of every query, both ways from one pass over the scores.

The rank of an item counts from 0: it is the number of strictly better items plus the number of
equal items before it in a fixed order, the sorted order of the ids (by code point). A query
with several correct items counts the best of them, and no other correct item is ever before
that one. Rows may therefore stand in any order, and constant embeddings score about chance.

Similarities are computed in float64 and rounded to float32 before they are compared. The last
bits of a matrix product depend on where in a tile an element falls; rounded, equal captions are
equal again, whatever the block size. (Only a pair within about 1e-16 of a boundary between two
float32 numbers could still differ.)
"""

from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings, EmbeddingsError
from pipeline.retrieval.similarity import SIMILARITIES

Ranks = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

BLOCK_ELEMENTS = 1 << 21
"""Similarities held at once; 24 MiB in float64 and float32 together."""


def rank_both_ways(e: Embeddings, block_elements: int = BLOCK_ELEMENTS) -> tuple[Ranks, Ranks]:
    """Rank each image's best caption among all captions, and each caption's image among all images.

    Every similarity is computed once and serves both directions.

    Parameters
    ----------
    e : images may have different numbers of captions.
    block_elements : bounds the memory; does not change the result. One image with a great part
        of all captions is never parted, and then a block is larger.

    Returns
    -------
    (images,) int64 and (captions,) int64
        0 is best; in the order of `e.image_ids` and of `e.caption_ids`.

    Raises
    ------
    EmbeddingsError
        A similarity is not finite in float32 (embeddings too large).
    """
    owner = image_rows(e)
    blocks = _blocks(owner, len(e.image_ids), block_elements)
    image_places, caption_places = _places(e.image_ids), _places(e.caption_ids)
    images, captions = _Queries.of(len(e.image_ids)), _Queries.of(len(e.caption_ids))

    def count(rows: slice, columns: Ranks, scores: Scores) -> None:
        images.count(rows, scores, caption_places[columns], gallery=1)
        captions.count(columns, scores, image_places[rows], gallery=0)

    # What every query looks for lies in the blocks of images with their own captions. They come
    # first, so that any other block can be counted for both sides and forgotten.
    for rows, columns in blocks:
        scores = _scores(e, rows, columns)
        own = scores[owner[columns] - rows.start, np.arange(len(columns))]
        captions.best[columns] = own
        captions.places[columns] = image_places[owner[columns]]
        order = np.lexsort((caption_places[columns], -own, owner[columns]))
        first = order[np.searchsorted(owner[columns], np.arange(rows.start, rows.stop))]
        images.best[rows] = own[first]
        images.places[rows] = caption_places[columns[first]]
        count(rows, columns, scores)
    for rows, own_columns in blocks:
        for _, columns in blocks:
            if columns is not own_columns:
                count(rows, columns, _scores(e, rows, columns))
    return images.ranks, captions.ranks


def image_rows(e: Embeddings) -> Ranks:
    """Return the row of each caption's image, (captions,) int64."""
    rows = {image_id: row for row, image_id in enumerate(e.image_ids)}
    return np.array([rows[image_id] for image_id in e.caption_image_ids], dtype=np.int64)


@dataclass(frozen=True)
class _Queries:
    """The queries of one direction: what each looks for and how much was found before it.

    Attributes
    ----------
    best : (queries,) float32, the score of the best correct item.
    places : (queries,) int64, the place of that item in the order that breaks ties.
    ranks : (queries,) int64, the items before it so far.
    """

    best: Scores
    places: Ranks
    ranks: Ranks

    @staticmethod
    def of(number: int) -> "_Queries":
        return _Queries(
            np.empty(number, np.float32), np.empty(number, np.int64), np.zeros(number, np.int64)
        )

    def count(self, queries: slice | Ranks, scores: Scores, places: Ranks, gallery: int) -> None:
        """Count a block whose axis `gallery` holds items at these places of the order.

        Correct items count nothing: none is better than the best, and among equals that one is
        the first.
        """
        best = np.expand_dims(self.best[queries], gallery)
        self.ranks[queries] += np.count_nonzero(scores > best, axis=gallery)
        equal = np.unravel_index(np.flatnonzero(scores == best), scores.shape)
        query, item = equal[1 - gallery], equal[gallery]
        before = query[places[item] < self.places[queries][query]]
        self.ranks[queries] += np.bincount(before, minlength=best.size)


def _scores(e: Embeddings, rows: slice, columns: Ranks) -> Scores:
    """Return the similarities (rows, columns) of some images and captions, rounded to float32.

    The sides are prepared block by block: that costs little beside the product, and no copy of
    a whole side is ever held.
    """
    similarity = SIMILARITIES[e.similarity]
    images, captions = e.image_embeddings[rows], e.caption_embeddings[columns]
    with np.errstate(over="ignore", invalid="ignore"):
        wide = similarity.between(similarity.prepare(images), similarity.prepare(captions))
        scores = wide.astype(np.float32, order="C")
    if not np.isfinite(scores).all():
        raise EmbeddingsError(
            "a similarity is not a finite float32 number, so ranks are not defined; the "
            f"embeddings are too large (up to {max(abs(images).max(), abs(captions).max()):g}): "
            "normalise them or use the similarity cosine"
        )
    return scores


def _blocks(owner: Ranks, num_images: int, block_elements: int) -> list[tuple[slice, Ranks]]:
    """Part the images into runs, each with the rows of its captions, sorted by image.

    The images of one run and the captions of another make at most `block_elements` pairs.
    """
    by_image = np.argsort(owner, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=num_images))))
    most_captions = max(1, isqrt(block_elements * len(owner) // num_images))
    most_images = max(1, block_elements // most_captions)
    blocks, start = [], 0
    while start < num_images:
        fits = int(np.searchsorted(starts, starts[start] + most_captions, side="right")) - 1
        stop = min(max(fits, start + 1), start + most_images, num_images)
        blocks.append((slice(start, stop), by_image[starts[start] : starts[stop]]))
        start = stop
    return blocks


def _places(ids: tuple[str, ...]) -> Ranks:
    """Return the place of each id in the sorted order of all, (ids,) int64."""
    places = np.empty(len(ids), np.int64)
    places[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return places
