"""Queries by vector arithmetic: an image, minus some words, plus others.

Kiros et al. 2014, section 3.2: *image of a blue car* - "blue" + "red" is near images of red
cars.
"""

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.search import Gallery, Hits
from pipeline.retrieval.similarity import Vectors, unit_rows

_CANCELLED = 1e-6


def is_composable(similarity: str) -> bool:
    """Return whether embeddings of a similarity can be added and subtracted."""
    return similarity == "cosine"


def require_composable(similarity: str) -> None:
    """Raise unless embeddings of a similarity can be added and subtracted."""
    if not is_composable(similarity):
        raise EmbeddingsError(
            "composing images and words, and re-sorting around a mean, need embeddings compared by "
            f"cosine; these are trained for the similarity {similarity}, for which a sum of unit "
            "vectors is meaningless; use an experiment whose head has cosine"
        )


def compose(image: Vectors, minus: Vectors, plus: Vectors, *, unit: bool = True) -> Vectors:
    """Return queries of the shape of `image`, (dim,) or (images, dim): minus words, plus others.

    Kiros et al. 2014, eq. (14), right-hand side, where one word is replaced by another; here,
    several words (words, dim) have equal weights. Without `unit`, vectors are added as they are,
    like the image features and the features predicted from words of Dong et al. 2018, section IV-C.
    The results are not of length 1.
    """
    images = np.atleast_2d(image)
    vectors = np.concatenate((images, minus, plus))
    if not vectors.any(axis=1).all():
        names = ["the image"] * len(images)
        names += [f"word {k} of those subtracted" for k in range(1, len(minus) + 1)]
        names += [f"word {k} of those added" for k in range(1, len(plus) + 1)]
        zero = [name for name, row in zip(names, vectors, strict=True) if not row.any()]
        raise EmbeddingsError(
            f"the embedding of {' and of '.join(dict.fromkeys(zero))} is the zero vector, which "
            "has no direction; omit it"
        )
    scaled = unit_rows(vectors) if unit else vectors.astype(np.float64)
    signs = np.repeat((-1.0, 1.0), (len(minus), len(plus)))
    queries = scaled[: len(images)] + signs @ scaled[len(images) :]
    longest = np.linalg.norm(scaled, axis=1).max()
    if (np.linalg.norm(queries, axis=1) < _CANCELLED * longest).any():
        raise EmbeddingsError("image and words cancel to the zero vector; use other words")
    return np.asarray(queries, np.float32).reshape(image.shape)


def around_the_mean(rows: Vectors) -> npt.NDArray[np.int64]:
    """Return the order (N,) of hits (N, dim) by the distance to their mean, nearest first."""
    # Kiros et al. 2014, section 3.2, against outliers among the hits.
    units = unit_rows(rows)
    distances = np.linalg.norm(units - units.mean(axis=0), axis=1)
    # Rounded to float32, so that equal rows tie.
    return np.argsort(distances.astype(np.float32), kind="stable")


def ids_and_scores(
    hits: Hits, gallery: Gallery, leave_out: str | None = None, around: int | None = None
) -> list[list[tuple[str, float]]]:
    """Return the ids and scores of each query's hits, best first, without the id `leave_out`."""
    ranked = []
    for rows, scores in zip(hits.rows, hits.scores, strict=True):
        positions = np.array(
            [at for at, row in enumerate(rows) if gallery.ids[row] != leave_out], int
        )
        if around is not None:
            positions = positions[:around]
            positions = positions[around_the_mean(gallery.rows[rows[positions]])]
        ranked.append([(gallery.ids[rows[at]], float(scores[at])) for at in positions])
    return ranked
