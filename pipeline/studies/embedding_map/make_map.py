"""The map of an embedding file's images: positions, labelled groups, nearest neighbours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from pipeline.retrieval.search import SYMMETRIC, Gallery, nearest
from pipeline.retrieval.similarity import row_vectors, unit_rows
from pipeline.store.hashing import chosen
from pipeline.studies.embedding_map.plane import SEED, Projection, placed
from pipeline.studies.embedding_map.typical_words import typical_words

POINTS = 2000
"""Maximal number of images, sampled by the seed."""

GROUPS, IMAGES_OF_A_GROUP = 12, 8
"""Maximal number of groups, and minimal average group size."""

WORDS, NEIGHBOURS = 4, 6
"""Words per group, and neighbours per image."""


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Images in a plane."""

    ids: tuple[str, ...]  # n image ids
    places: npt.NDArray[np.float64]  # (n, 2) float64
    projection: Projection
    shares: tuple[float, float] | None  # explained variance, 0-1, of both axes of "pca"
    groups: npt.NDArray[np.int64]  # (n,) int64, the group of each image; the largest is 0
    words: tuple[tuple[str, ...], ...]  # typical words of each group's captions, most typical first
    neighbours: npt.NDArray[np.int64]
    """(n, k) int64. Rows of the nearest other images in the map, best first."""
    scores: npt.NDArray[np.float32]  # (n, k) float32, their similarities
    similarity: str
    """That of the scores; cosine if that of the embeddings cannot compare two images."""
    left_out: int  # number of images that are not in the map


def make_map(
    gallery: Gallery,
    captions_of: Callable[[str], Sequence[str]],
    projection: Projection = "pca",
    points: int = POINTS,
    images: Sequence[str] | None = None,
) -> EmbeddingMap | None:
    """Map at most `points` images, sets of vectors by their mean; None without images."""
    images = gallery.ids if images is None else images
    if not len(images):
        return None
    ids = chosen(images, points, SEED)
    row_of = {image: row for row, image in enumerate(gallery.ids)}
    vectors = row_vectors(gallery.rows[[row_of[image] for image in ids]])
    symmetric = gallery.similarity in SYMMETRIC and gallery.rows.ndim == 2
    similarity = gallery.similarity if symmetric else "cosine"
    places, shares = placed(
        seen := unit_rows(vectors) if similarity == "cosine" else vectors, projection
    )
    groups = _groups(seen)
    texts = [
        [text for row in np.flatnonzero(groups == group) for text in captions_of(ids[row])]
        for group in range(int(groups.max()) + 1)
    ]
    neighbours, scores = _neighbours(Gallery("images", ids, vectors, similarity))
    return EmbeddingMap(
        tuple(ids), places, "pca" if shares else projection, shares, groups,
        tuple(typical_words(texts, WORDS)), neighbours, scores, similarity,
        len(images) - len(ids),
    )  # fmt: skip


def _groups(rows: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """Return the k-means group of each row; larger groups first, ties by the first row."""
    # Here, since it takes a second to import.
    from sklearn.cluster import KMeans

    different = len(np.unique(rows, axis=0))
    number = max(1, min(GROUPS, len(rows) // IMAGES_OF_A_GROUP, different))
    with threadpool_limits(limits=1):
        clusters = KMeans(number, n_init=4, random_state=SEED).fit_predict(rows)
    labels, first, sizes = np.unique(clusters, return_index=True, return_counts=True)
    order = labels[np.lexsort((first, -sizes))]
    number_of = np.empty(int(labels.max()) + 1, np.int64)
    number_of[order] = np.arange(len(order))
    return number_of[clusters]


def _neighbours(images: Gallery) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the nearest other rows of each row, and their similarities."""
    rows = len(images.ids)
    hits = nearest(images, images.rows, "images", NEIGHBOURS + 1)
    others = hits.rows != np.arange(rows)[:, None]
    # A row may be missing in its own first hits if many rows are equal to it.
    others[others.all(axis=1), -1] = False
    width = hits.rows.shape[1] - 1
    return hits.rows[others].reshape(rows, width), hits.scores[others].reshape(rows, width)
