"""Recall of plain arrays, in the same table as that of an embedding file."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings, EmbeddingsError
from pipeline.retrieval.recall import Table
from pipeline.retrieval.significance.small_galleries import table_of_gallery


def recall(
    images: "npt.ArrayLike",
    captions: "npt.ArrayLike",
    image_of_caption: "npt.ArrayLike",
    *,
    similarity: str = "cosine",
    captions_per_image: int | None = 5,
) -> Table:
    """Evaluate retrieval in both directions over plain arrays, as `recall.json` has it.

    Of fewer than 1,000 images the table also has the figures of chance and 95 % intervals.

    Parameters
    ----------
    images : array_like. (n, d) finite numbers, one row per image; compared as float32, as in an
        embedding file. (n, parts, d) where the similarity is one of sets: absent parts are zero.
    captions : array_like. (m, d) or (m, parts, d) likewise, with the same d.
    image_of_caption : array_like. (m,) integers 0 to n - 1, the row of each caption's image. Images
        may have different numbers of captions, in any order; one without is searched, and is no
        query.
    similarity : str. A name in `pipeline.retrieval.similarity.SIMILARITIES`.
    captions_per_image : int or None. Most captions of an image that count, the first by their
        rows, both as queries and in the gallery; None counts all.

    Returns
    -------
    dict
        See `pipeline.retrieval.significance.small_galleries.table_of_gallery`. Equal scores are
        ranked in the order of the rows.

    Raises
    ------
    EmbeddingsError
        An array has another shape or dtype, a number that is not finite, or rows that do not
        exist; there is no caption; the similarity is not known.

    Examples
    --------
    >>> table = recall([[1, 0], [0, 1]], [[1, 0.1], [0.2, 1], [1, 0.3]], [0, 1, 1])
    >>> table["image_to_text_r1"], round(table["text_to_image_r1"], 1)
    (100.0, 66.7)
    """
    sides = _rows("images", images), _rows("captions", captions)
    rows = _array("image_of_caption", image_of_caption)
    if rows.shape != (len(sides[1]),) or rows.dtype.kind not in "iu":
        raise EmbeddingsError(
            f"image_of_caption is {rows.dtype} of shape {rows.shape}, expected integers of shape "
            f"({len(sides[1])},): for each caption the row of its image; where images have ids, "
            "look up their rows"
        )
    outside = np.flatnonzero((rows < 0) | (rows >= len(sides[0])))
    if len(outside):
        raise EmbeddingsError(
            f"image_of_caption: {len(outside)} captions name rows that images does not have, first "
            f"caption {outside[0]}, row {rows[outside[0]]}; rows count from 0 and there are "
            f"{len(sides[0])}"
        )
    if captions_per_image is not None and captions_per_image < 1:
        raise EmbeddingsError(
            f"captions_per_image is {captions_per_image}; give at least 1, or None to count all"
        )
    image_ids, caption_ids = (_numbered(len(side)) for side in sides)
    embeddings = Embeddings(
        image_ids=image_ids,
        image_embeddings=sides[0],
        caption_ids=caption_ids,
        caption_image_ids=tuple(image_ids[row] for row in rows),
        caption_embeddings=sides[1],
        similarity=similarity,
        provenance={},
    )
    return table_of_gallery(embeddings, captions_per_image)


def _array(name: str, given: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        return np.asarray(given)
    # Rows of different lengths, and tensors on a GPU or with gradients.
    except (ValueError, TypeError, RuntimeError) as error:
        raise EmbeddingsError(
            f"{name} is no array ({error}); give a numpy array, or what numpy makes one of"
        ) from error


def _rows(side: str, given: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return rows as float32; `Embeddings` checks that they fit the similarity and are finite."""
    rows = _array(side, given)
    if rows.ndim < 2 or not rows.size or rows.dtype.kind not in "fiu":
        raise EmbeddingsError(
            f"{side} is {rows.dtype} of shape {rows.shape}, expected real numbers of shape "
            "(rows, dim), at least one row; a single row is of shape (1, dim)"
        )
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf, which is refused
        return rows.astype(np.float32, copy=False)


def _numbered(count: int) -> tuple[str, ...]:
    """Return ids whose sorted order is that of the rows."""
    return tuple(f"{row:0{len(str(count))}d}" for row in range(count))
