"""Similarities of images and captions by name, in float64, block by block."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
"""Embeddings: (rows, dim) float32, or sets of vectors, (rows, parts, dim)."""

PreparedRows = npt.NDArray[Any]
"""Prepared rows: float32 or float64, in the shape of the `Vectors`."""

Matrix = npt.NDArray[np.float64]

CANCELLED = 2.0**-40
"""Values below this count as 0, relative to terms of size 1.

Terms that cancel leave rounding noise of about 1e-16 of their size instead of 0. The noise depends
on the order of summation, so it would order items that are in fact equal.
"""

NEAR = 2.0**-20
"""Squared distances below this, relative to the squared lengths, are computed from differences.

As a difference of squares they would keep fewer digits than float32 has, or none: the distances of
vectors far from the origin.
"""

TINY = 2.0**-62
"""If no number of two rows is larger, their squares and products are not normal float32 numbers."""

FLOOR = 1e-6
"""Minimal norm for the division in cross attention, for vectors at most a few units long."""

# Numbers in a buffer, small enough for a core's caches.
_ORDER_ELEMENTS = 1 << 15
_ATTENTION_ELEMENTS = 1 << 16
_CONTEXTS = 8


@dataclass(frozen=True)
class Similarity:
    """A similarity of images and captions; greater is more similar.

    The roles of the two sides do not depend on which one is the query, so that an asymmetric
    similarity (order-embeddings, Vendrov et al. 2016) has the same interface.
    """

    # Value of the embedding file's attribute `similarity`; it identifies the similarity
    # completely, so another parameter (a temperature) means another name.
    name: str
    prepare: Callable[[npt.NDArray[np.float32]], PreparedRows]  # applied once to each side
    # Prepared images (n, ...), prepared captions (m, ...) -> (n, m).
    between: Callable[[PreparedRows, PreparedRows], Matrix]
    sets: bool = False  # whether rows are (parts, dim), where parts of zeros are absent


@dataclass(frozen=True)
class CrossAttention:
    """Parameters of a Stacked Cross Attention (Lee et al. 2018)."""

    queries: Literal["captions", "images"]  # side whose parts attend to the other's
    softmax: float  # lambda_1, the inverse temperature of the attention
    lse: float | None  # lambda_2 of LogSumExp over the queries' relevances; None: their mean


# Constants of the paper and of its authors' program; for i2t-lse those of Flickr30K (COCO
# has 20).
CROSS_ATTENTIONS = {
    "scan-t2i-avg": CrossAttention("captions", 9.0, None),
    "scan-t2i-lse": CrossAttention("captions", 9.0, 6.0),
    "scan-i2t-avg": CrossAttention("images", 4.0, None),
    "scan-i2t-lse": CrossAttention("images", 4.0, 5.0),
}
"""The published cross attentions; see `pipeline.retrieval.torch_scores.scan` for the formula."""


def unit_rows(rows: npt.NDArray[np.floating]) -> Matrix:
    """Return rows (..., dim) scaled to length 1 in float64; a zero row stays zero."""
    wide = rows.astype(np.float64)
    norms = np.sqrt(np.einsum("...d,...d->...", wide, wide))
    norms[norms == 0] = 1.0
    wide /= norms[..., None]
    return wide


def row_vectors(rows: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Return one vector per row of (n, ..., channels): the mean over all axes in between."""
    wide = rows.astype(np.float32, copy=False)
    return wide if wide.ndim == 2 else wide.reshape(len(wide), -1, wide.shape[-1]).mean(axis=1)


def _as_they_are(rows: npt.NDArray[np.float32]) -> PreparedRows:
    return rows


def _float64(rows: npt.NDArray[np.float32]) -> Matrix:
    return rows.astype(np.float64)


def _dot(images: Matrix, captions: Matrix) -> Matrix:
    return np.asarray(images @ captions.T)


def _cosine(images: Matrix, captions: Matrix) -> Matrix:
    scores = _dot(images, captions)
    scores[np.abs(scores) < CANCELLED] = 0.0
    return scores


def _minus_squared_distance(images: Matrix, captions: Matrix) -> Matrix:
    image_squares = np.einsum("nd,nd->n", images, images)[:, None]
    caption_squares = np.einsum("md,md->m", captions, captions)[None, :]
    squares = image_squares + caption_squares
    scores = 2.0 * _dot(images, captions) - squares
    near = scores > -NEAR * squares
    size = max(1, _ORDER_ELEMENTS // images.shape[1])
    for row in np.flatnonzero(near.any(axis=1)):
        columns = np.flatnonzero(near[row])
        for start in range(0, len(columns), size):
            some = columns[start : start + size]
            difference = captions[some] - images[row]
            scores[row, some] = -np.vecdot(difference, difference)
    return np.asarray(scores)


def range_fault(similarity: str, images: Any, captions: Any, finite: bool) -> str | None:
    """Return why float32 cannot hold the similarities of prepared or plain rows, or None.

    A few rows are enough: tiny ones have no products with, and no distances to, other tiny ones.
    """
    if finite and similarity not in ("dot", "euclidean", "order"):
        return None
    # The largest number of each row; torch returns it with its place.
    sizes = [getattr(m := abs(rows).max(-1), "values", m) for rows in (images, captions)]
    most = max((float(m.max()) for m in sizes if len(m)), default=0.0)
    if finite:
        least = [float(m[m > 0].min()) if (m > 0).any() else np.inf for m in sizes]
        zeros = max((float(m.min()) for m in sizes if len(m)), default=0.0) < TINY
        tiny = np.prod(least) < TINY**2 if similarity == "dot" else min(least) < TINY and zeros
        if not tiny:
            return None
        most = min(least)
    value, size = ("0 as a", "small") if finite else ("not a finite", "large")
    return (
        f"a similarity is {value} float32 number, since the embeddings are too {size} (up to "
        f"{most:g}): normalise them or use the similarity cosine"
    )


def _order(images: Matrix, captions: Matrix) -> Matrix:
    scores = np.empty((len(images), len(captions)))
    dim = images.shape[1]
    size = max(1, _ORDER_ELEMENTS // dim)
    # An array of zeros, and vecdot instead of einsum, avoid temporary arrays.
    buffer, zeros = np.empty((size, dim)), np.zeros((size, dim))
    for start in range(0, len(captions), size):
        some = captions[start : start + size]
        excess = buffer[: len(some)]
        for image, row in zip(images, scores, strict=True):
            np.subtract(some, image, out=excess)
            np.maximum(excess, zeros[: len(some)], out=excess)
            np.vecdot(excess, excess, out=row[start : start + size])
    return np.negative(scores, out=scores)


def _scan(images: PreparedRows, captions: PreparedRows, attention: CrossAttention) -> Matrix:
    if attention.queries == "captions":
        return _attend(images, captions, attention)
    return _attend(captions, images, attention).T


def _attend(contexts: PreparedRows, queries: PreparedRows, attention: CrossAttention) -> Matrix:
    """Return scores (n, m) of contexts (n, a, d) and queries (m, b, d).

    Rows with the same number of parts are scored together and without their absent parts, so that
    padding costs nothing and changes nothing.
    """
    scores = np.zeros((len(contexts), len(queries)))
    asks = (queries != 0).any(axis=2)
    attended = (contexts != 0).any(axis=2)
    numbers = asks.sum(axis=1)
    for number in np.unique(numbers[numbers > 0]):
        alike = np.flatnonzero(numbers == number)
        size = max(1, _ATTENTION_ELEMENTS // (contexts.shape[1] * int(number)))
        for start in range(0, len(alike), size):
            some = alike[start : start + size]
            parts = unit_rows(queries[some][asks[some]])
            # One product for several contexts, which is most of the work: a fifth faster.
            for first in range(0, len(contexts), _CONTEXTS):
                together = slice(first, first + _CONTEXTS)
                there = attended[together]
                units = unit_rows(contexts[together][there])
                cosines = units @ parts.T
                ends = there.sum(axis=1).cumsum().tolist()
                for row, begin, end in zip(scores[together], [0, *ends], ends, strict=False):
                    if end > begin:
                        rows = slice(begin, end)
                        row[some] = _attended(units[rows], cosines[rows], len(some), attention)
    return scores


def _attended(context: Matrix, cosines: Matrix, m: int, attention: CrossAttention) -> Matrix:
    """Return scores (m,) of a context (a, d) and m queries of b parts, all parts of length 1.

    `cosines` (a, m * b) are the inner products of the context's parts with those of the queries.
    """
    a, b = len(context), cosines.shape[1] // m
    clipped = np.maximum(cosines, 0.0).reshape(a, m, b)
    norms = np.maximum(np.sqrt(np.einsum("amb,amb->am", clipped, clipped)), FLOOR)
    clipped *= (attention.softmax / norms)[:, :, None]
    # Unnormalised: a cosine does not depend on the length of the attended vector.
    weights = np.exp(clipped, out=clipped).reshape(a, m * b)
    shortest = FLOOR * weights.sum(axis=0)
    products = np.einsum("aq,aq->q", weights, cosines)
    squares = np.einsum("aq,aq->q", weights, (context @ context.T) @ weights)
    relevance = products / np.sqrt(np.maximum(squares, shortest**2))
    relevance = relevance.reshape(m, b)
    if attention.lse is None:
        return np.asarray(relevance.mean(axis=1))
    return np.asarray(np.log(np.exp(attention.lse * relevance).sum(axis=1)) / attention.lse)


SIMILARITIES = {
    s.name: s
    for s in (
        # The zero vector has cosine 0 to everything.
        Similarity("cosine", unit_rows, _cosine),
        # Minus the squared distance |v - s|^2: the same ranks as the distance itself.
        Similarity("euclidean", _float64, _minus_squared_distance),
        Similarity("dot", _float64, _dot),
        # -sum_d max(0, s_d - v_d)^2, Vendrov et al. 2016, eq. (3): the caption is more general.
        # VSE++ uses the root, which has the same ranks.
        Similarity("order", _float64, _order),
        *(
            Similarity(name, _as_they_are, partial(_scan, attention=attention), sets=True)
            for name, attention in CROSS_ATTENTIONS.items()
        ),
    )
}
"""Every similarity by its name."""
