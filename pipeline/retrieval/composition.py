"""Queries by vector arithmetic: an image, less some words, plus others.

Kiros et al. 2014, section 3.2: *image of a blue car* - "blue" + "red" is near images of red
cars.
"""

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.search import Gallery, Hits, SearchError, Vectors
from pipeline.retrieval.similarity import unit_rows

_CANCELLED = 1e-6


def is_composable(similarity: str) -> bool:
    """Return whether embeddings of a similarity can be added and taken away."""
    return similarity == "cosine"


def require_composable(similarity: str) -> None:
    """Check that embeddings of a similarity can be added and taken away.

    Raises
    ------
    SearchError
    """
    if not is_composable(similarity):
        raise SearchError(
            "composing images and words, and re-sorting around a mean, go by the direction of "
            f"embeddings, by cosine; these are meant for the similarity {similarity}, under which "
            "a sum of unit vectors means nothing; take an experiment whose head has cosine"
        )


def compose(image: Vectors, minus: Vectors, plus: Vectors) -> Vectors:
    """Return the query of Kiros et al. 2014, eq. (14), right-hand side.

    All vectors are brought to length 1 first, as they are in the paper. There one word goes and
    one comes; here each of several counts alike.

    Parameters
    ----------
    image : (dim,) float32.
    minus, plus : (words, dim) float32 embeddings of the words; there may be none.

    Returns
    -------
    (dim,) float32, not of length 1.

    Raises
    ------
    SearchError
        A vector is zero, or they cancel, so that there is no direction.
    """
    vectors = np.concatenate((image[None], minus, plus))
    if not vectors.any(axis=1).all():
        names = ["the image"]
        names += [f"word {k} of those taken away" for k in range(1, len(minus) + 1)]
        names += [f"word {k} of those added" for k in range(1, len(plus) + 1)]
        zero = [name for name, row in zip(names, vectors, strict=True) if not row.any()]
        raise SearchError(
            f"the embedding of {' and of '.join(zero)} is the zero vector, which has no direction; "
            "leave it out"
        )
    signs = np.repeat((1.0, -1.0, 1.0), (1, len(minus), len(plus)))
    query = signs @ unit_rows(vectors)
    if np.linalg.norm(query) < _CANCELLED:
        raise SearchError("image and words cancel to the zero vector; take other words")
    return np.asarray(query, np.float32)


def around_the_mean(rows: Vectors) -> npt.NDArray[np.int64]:
    """Order the N nearest rows by their distance to their mean; the nearest to it comes first.

    Kiros et al. 2014, section 3.2, against a poor result among good ones. The distance is the
    Euclidean one of unit vectors. Rows that are equally far stay in the order given.

    Parameters
    ----------
    rows : (N, dim) float32, best first.

    Returns
    -------
    (N,) int64, positions in `rows`.
    """
    units = unit_rows(rows)
    distances = np.linalg.norm(units - units.mean(axis=0), axis=1)
    # Rounded, so that equal rows are equally far.
    return np.argsort(distances.astype(np.float32), kind="stable")


def ids_and_scores(
    hits: Hits, gallery: Gallery, leave_out: str | None = None, around: int | None = None
) -> list[list[tuple[str, float]]]:
    """Return the ids and scores of each query's hits, best first.

    Parameters
    ----------
    hits : rows of the gallery with their scores.
    leave_out : an id that is no hit, such as the query's own.
    around : re-sort the first N by `around_the_mean`, and leave the others out.
    """
    ranked = []
    for found, scores in zip(hits.rows, hits.scores, strict=True):
        kept = np.array([at for at, row in enumerate(found) if gallery.ids[row] != leave_out], int)
        if around is not None:
            kept = kept[:around]
            kept = kept[around_the_mean(gallery.rows[found[kept]])]
        ranked.append([(gallery.ids[found[at]], float(scores[at])) for at in kept])
    return ranked
