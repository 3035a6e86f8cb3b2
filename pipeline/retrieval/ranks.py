"""Exact ranks, by id, of the correct item for every query: nothing sampled, ties defined.

The rank of an item counts from 0: it is the number of strictly better items plus the number of
equal items before it in a fixed order, the sorted order of the ids (by code point). A query
with several correct items counts the best of them, and no other correct item is ever before
that one. Rows may therefore stand in any order, and constant embeddings score about chance.

Similarities are computed in float64 and rounded to float32 before they are compared. The last
bits of a matrix product depend on where in a tile an element falls; rounded, equal captions are
equal again, whatever the block size. (Only a pair within about 1e-16 of a boundary between two
float32 numbers could still differ.)
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings, EmbeddingsError
from pipeline.retrieval.similarity import SIMILARITIES, Matrix

Ranks = npt.NDArray[np.int64]

BLOCK_ELEMENTS = 1 << 22
"""Similarities held at once; 48 MiB in float64 and float32 together."""


def image_to_text(e: Embeddings, block_elements: int = BLOCK_ELEMENTS) -> Ranks:
    """Rank, for every image, the best of its captions among all captions.

    Parameters
    ----------
    e : images may have different numbers of captions.
    block_elements : bounds the memory; does not change the result.

    Returns
    -------
    (images,) int64
        0 is best; in the order of `e.image_ids`.

    Raises
    ------
    EmbeddingsError
        A similarity is not finite in float32 (embeddings too large).
    """
    similarity = SIMILARITIES[e.similarity]
    order = _sorted_positions(e.caption_ids)
    rows = {image_id: row for row, image_id in enumerate(e.image_ids)}
    owner = np.array([rows[e.caption_image_ids[position]] for position in order])
    columns = np.argsort(owner, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(rows)))))
    return _best_ranks(
        similarity.prepare(e.image_embeddings),
        similarity.prepare(e.caption_embeddings[order]),
        similarity.between,
        columns,
        starts,
        block_elements,
    )


def text_to_image(e: Embeddings, block_elements: int = BLOCK_ELEMENTS) -> Ranks:
    """Rank, for every caption, its image among all images.

    Parameters, errors: as `image_to_text`.

    Returns
    -------
    (captions,) int64
        0 is best; in the order of `e.caption_ids`.
    """
    similarity = SIMILARITIES[e.similarity]
    order = _sorted_positions(e.image_ids)
    columns = {e.image_ids[position]: column for column, position in enumerate(order)}
    return _best_ranks(
        similarity.prepare(e.caption_embeddings),
        similarity.prepare(e.image_embeddings[order]),
        lambda captions, images: similarity.between(images, captions).T,
        np.array([columns[image_id] for image_id in e.caption_image_ids]),
        np.arange(len(e.caption_ids) + 1),
        block_elements,
    )


def _sorted_positions(ids: tuple[str, ...]) -> list[int]:
    return sorted(range(len(ids)), key=ids.__getitem__)


def _best_ranks(
    queries: Matrix,
    gallery: Matrix,
    score: Callable[[Matrix, Matrix], Matrix],
    columns: Ranks,
    starts: Ranks,
    block_elements: int,
) -> Ranks:
    """Rank the best correct gallery item of each query, ties in gallery order.

    `columns[starts[q] : starts[q + 1]]` are the correct items of query q, ascending.
    """
    ranks = np.empty(len(queries), dtype=np.int64)
    size = max(1, block_elements // len(gallery))
    for start in range(0, len(queries), size):
        with np.errstate(over="ignore", invalid="ignore"):
            block = score(queries[start : start + size], gallery).astype(np.float32, order="C")
        if not np.isfinite(block).all():
            raise EmbeddingsError(
                "a similarity is not a finite float32 number, so ranks are not defined; the "
                f"embeddings are too large (up to {max(abs(queries).max(), abs(gallery).max()):g})"
                ": normalise them or use the similarity cosine"
            )
        for query, scores in enumerate(block, start):
            correct = columns[starts[query] : starts[query + 1]]
            # argmax is the first of equals, so `first` is the best correct item in the order and
            # every item counted here is a wrong one.
            first = correct[scores[correct].argmax()]
            best = scores[first]
            ranks[query] = np.count_nonzero(scores > best)
            ranks[query] += np.count_nonzero(scores[:first] == best)
    return ranks
