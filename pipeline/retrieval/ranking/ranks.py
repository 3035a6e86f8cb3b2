"""Exact ranks by id of the correct item of every query, both ways from one pass over the scores.

The rank of an item counts from 0: it is the number of strictly better items plus the number of
equal items before it in a fixed order, the sorted order of the ids (by code point). For a query
with several correct items the best of them counts, and no other correct item is ever before that
one. The row order is therefore irrelevant, and constant embeddings score about chance.
`pipeline.retrieval.ranking.blocks` defines when two items are equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.blocks import Axis, Block, BlockOf, HostBlock, Ranks, Scores
from pipeline.retrieval.similarity import range_fault
from pipeline.store.packed import sorted_order

Ranker = Callable[[Embeddings], tuple[Ranks, Ranks]]
"""Ranks like `rank_both_ways`."""

BLOCK_ELEMENTS = 1 << 21
"""Similarities held at once; 24 MiB in float64 and float32 together."""


def rank_both_ways(
    e: Embeddings,
    block_elements: int = BLOCK_ELEMENTS,
    block_of: BlockOf = HostBlock.of,
    sides: tuple[Any, Any] | None = None,
) -> tuple[Ranks, Ranks]:
    """Rank each image's best caption among all captions, and each caption's image among all images.

    Ranks are from 0, in the order of `e.query_ids` and of `e.caption_ids`. Every similarity is
    computed once and serves both directions. `block_elements` bounds the memory and does not affect
    the result; the captions of one image are never split, so a block may be larger. `sides` are the
    embeddings of images and captions where `block_of` computes; None: as they are.
    """
    if not e.caption_ids:
        raise EmbeddingsError(
            f"no captions: nothing to rank; none of the {len(e.image_ids)} images has one"
        )
    image_of_caption = e.image_of_caption
    blocks = _blocks(image_of_caption, len(e.image_ids), block_elements)
    image_rows, caption_rows = sides or (e.image_embeddings, e.caption_embeddings)
    image_places, caption_places = _places(e.image_ids), _places(e.caption_ids)
    images, captions = _Queries.of(len(e.image_ids)), _Queries.of(len(e.caption_ids))

    def block_at(rows: slice, columns: Ranks) -> Block:
        return _block(e.similarity, image_rows[rows], caption_rows[columns], block_of)

    def count(rows: slice, columns: Ranks, block: Block) -> None:
        images.count(rows, block, caption_places[columns], gallery=1)
        captions.count(columns, block, image_places[rows], gallery=0)

    # The scores of the correct items are in the blocks of images with their own captions. These
    # are computed first, so that any other block can be counted for both sides and discarded.
    for rows, columns in blocks:
        if not len(columns):
            continue
        block = block_at(rows, columns)
        correct = block.pairs(image_of_caption[columns] - rows.start, np.arange(len(columns)))
        captions.best[columns] = correct
        captions.places[columns] = image_places[image_of_caption[columns]]
        # The best caption of an image: by image, then score, then place in the order.
        order = np.lexsort((caption_places[columns], -correct, image_of_caption[columns]))
        asking = np.unique(image_of_caption[columns])
        first = order[np.searchsorted(image_of_caption[columns], asking)]
        images.best[asking] = correct[first]
        images.places[asking] = caption_places[columns[first]]
        count(rows, columns, block)
    for rows, own_columns in blocks:
        for _, columns in blocks:
            if columns is not own_columns and len(columns):
                count(rows, columns, block_at(rows, columns))
    return images.ranks[e.captioned], captions.ranks


def query_rows(e: Embeddings) -> Ranks:
    """Return the row of each caption's image among `e.query_ids`, (captions,) int64."""
    return np.searchsorted(e.captioned, e.image_of_caption)


@dataclass(frozen=True)
class _Queries:
    """Queries of one direction: each one's correct item and the number of items before it."""

    best: Scores  # (queries,), score of the best correct item; infinite without one
    places: Ranks  # (queries,), position of that item in the tie-breaking order
    ranks: Ranks  # (queries,), items before it so far

    @staticmethod
    def of(number: int) -> "_Queries":
        return _Queries(
            np.full(number, np.inf, np.float32),
            np.zeros(number, np.int64),
            np.zeros(number, np.int64),
        )

    def count(self, queries: slice | Ranks, block: Block, places: Ranks, gallery: Axis) -> None:
        """Count a block whose axis `gallery` has items at these positions of the order."""
        # Correct items are never counted: none is better than the best of them, and among equals it
        # is the first. So no mask of correct pairs is needed.
        best, best_places = self.best[queries], self.places[queries]
        self.ranks[queries] += block.before(best, best_places, places, gallery)


def _block(similarity: str, images: Any, captions: Any, block_of: BlockOf) -> Block:
    """Return the similarities of some images and captions; raise if float32 cannot hold them."""
    block = block_of(similarity, images, captions)
    if fault := range_fault(similarity, images, captions, finite=block.finite()):
        raise EmbeddingsError(fault)
    return block


def _blocks(
    image_of_caption: Ranks, num_images: int, block_elements: int
) -> list[tuple[slice, Ranks]]:
    """Split the images into runs, each with the rows of its captions, sorted by image.

    The images of one run and the captions of another form at most `block_elements` pairs.
    """
    by_image = np.argsort(image_of_caption, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(image_of_caption, minlength=num_images))))
    # A run of average images reaches both limits at once, which reads the fewest rows per pair.
    most_captions = max(1, isqrt(block_elements * len(image_of_caption) // num_images))
    most_images = max(1, block_elements // most_captions)
    blocks, start = [], 0
    while start < num_images:
        fits = int(np.searchsorted(starts, starts[start] + most_captions, side="right")) - 1
        stop = min(max(fits, start + 1), start + most_images, num_images)
        blocks.append((slice(start, stop), by_image[starts[start] : starts[stop]]))
        start = stop
    return blocks


def _places(ids: Sequence[str]) -> Ranks:
    """Return the position of each id in sorted order, (ids,) int64."""
    places = np.empty(len(ids), np.int64)
    places[sorted_order(ids)] = np.arange(len(ids))
    return places
