"""Recall of plain arrays, as the table of an embedding file."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.recall import Table
from pipeline.retrieval.ranking.small_galleries import table_of_gallery


def recall(
    images: "npt.ArrayLike",
    captions: "npt.ArrayLike",
    image_of_caption: "npt.ArrayLike",
    *,
    similarity: str = "cosine",
    captions_per_image: int | None = 5,
) -> Table:
    """Evaluate retrieval in both directions on plain arrays, as in `recall.json`.

    For fewer than 1,000 images the table also has chance levels and 95 % intervals.

    Parameters
    ----------
    images : array_like. (n, d) finite numbers, one row per image; compared as float32, as in an
        embedding file. (n, parts, d) if the similarity compares sets: absent parts are zero.
    captions : array_like. (m, d) or (m, parts, d) likewise, with the same d.
    image_of_caption : array_like. (m,) integers 0 to n - 1, row of each caption's image. Images may
        have different numbers of captions, in any order; an image without a caption is in the
        gallery, but not a query.
    similarity : str. As for `pipeline.Embeddings`.
    captions_per_image : int or None. Maximal number of captions per image, the first by row, as
        queries and in the gallery; None: all.

    Returns
    -------
    dict
        `image_to_text_*` and `text_to_image_*` with `r1`, `r5`, `r10` (percentages 0-100),
        `median_rank` and `mean_rank` (from 1); `rsum`, the sum of the six recalls; `num_images`;
        `num_captions` used; `captions_per_image`, the largest number used for any image. For fewer
        than 1,000 images also `<figure>_chance`, the expectation for a random order, and the bounds
        `<figure>_low` and `<figure>_high` of each R@K and `rsum`. Equal scores are ranked in the
        order of the rows.

    Raises
    ------
    EmbeddingsError
        An array has the wrong shape or dtype, values that are not finite, or invalid rows; there is
        no caption; the similarity is unknown.

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
            f"({len(sides[1])},): the row of each caption's image; convert image ids to rows first"
        )
    outside = np.flatnonzero((rows < 0) | (rows >= len(sides[0])))
    if len(outside):
        raise EmbeddingsError(
            f"image_of_caption: {len(outside)} captions name rows that images does not have, first "
            f"caption {outside[0]}, row {rows[outside[0]]}; rows are 0 to {len(sides[0]) - 1}"
        )
    whole = isinstance(captions_per_image, int | np.integer | None)
    if not whole or (captions_per_image is not None and captions_per_image < 1):
        raise EmbeddingsError(
            f"captions_per_image is {captions_per_image!r}; use at least 1, or None to count all"
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
    if isinstance(given, np.ma.MaskedArray):
        raise EmbeddingsError(f"{name} is a masked array; fill it, or leave masked rows out")
    try:
        return np.asarray(given)
    # Rows of different lengths, or tensors on a GPU or with gradients.
    except (ValueError, TypeError, RuntimeError) as error:
        raise EmbeddingsError(
            f"{name} is not an array ({error}); pass a numpy array or convertible values"
        ) from error


def _rows(side: str, given: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return rows as float32; `Embeddings` checks the shape and that they are finite."""
    rows = _array(side, given)
    if rows.ndim < 2 or not rows.size or rows.dtype.kind not in "fiu":
        raise EmbeddingsError(
            f"{side} is {rows.dtype} of shape {rows.shape}, expected real numbers of shape "
            "(rows, dim), at least one row; a single row is of shape (1, dim)"
        )
    with np.errstate(over="ignore"):  # values beyond float32 become inf, which is rejected
        narrow = rows.astype(np.float32, copy=False)
    if (rows.any(axis=-1) & ~narrow.any(axis=-1)).any():
        raise EmbeddingsError(f"{side} has a row of numbers too small for float32; scale them up")
    return narrow


def _numbered(count: int) -> tuple[str, ...]:
    """Return ids that sort in row order."""
    return tuple(f"{row:0{len(str(count))}d}" for row in range(count))
