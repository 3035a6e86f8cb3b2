"""Several heads as one: embeddings whose dot product is the mean of the heads' cosines."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings, EmbeddingsError
from pipeline.retrieval.similarity import unit_rows

_Rows = npt.NDArray[np.float32]


def average(members: Sequence[Embeddings], weights: Sequence[float] | None = None) -> Embeddings:
    """Return embeddings by which a pair's dot product is the weighted mean of its cosines.

    The members' unit vectors side by side, each times the square root of its share of the weights.

    Parameters
    ----------
    members : two or more of the same images and captions, rows in any order, similarity "cosine".
    weights : one a member, above 0; None weighs them equally.

    Returns
    -------
    Embeddings
        Similarity "dot", rows in the order of the first member and at norm 1; dim is the sum of
        the members'. A row that is zero in a member has cosine 0 there, and a smaller norm.

    Raises
    ------
    EmbeddingsError
        Fewer than two members, another similarity, other images, captions or pairs.
    """
    weights = [1.0] * len(members) if weights is None else list(weights)
    if len(members) < 2 or len(weights) != len(members) or min(weights) <= 0:
        raise EmbeddingsError(
            f"an ensemble needs two members or more and a weight above 0 for each; it has "
            f"{len(members)} and the weights {weights}"
        )
    first = members[0]
    shares = np.sqrt(np.array(weights) / sum(weights))
    images: list[_Rows] = []
    captions: list[_Rows] = []
    for number, (member, share) in enumerate(zip(members, shares, strict=True), 1):
        if member.similarity != "cosine":
            raise EmbeddingsError(
                f"member {number} has the similarity {member.similarity!r}; only cosines can be "
                "averaged by putting embeddings side by side: leave that member out"
            )
        image_rows = _positions(first.image_ids, member.image_ids, "images", number)
        caption_rows = _positions(first.caption_ids, member.caption_ids, "captions", number)
        if [member.caption_image_ids[row] for row in caption_rows] != [*first.caption_image_ids]:
            raise EmbeddingsError(
                f"member {number} has other images for its captions than member 1; embed the same "
                "split of the same dataset"
            )
        images.append(_scaled(member.image_embeddings[image_rows], share))
        captions.append(_scaled(member.caption_embeddings[caption_rows], share))
    return Embeddings(
        first.image_ids,
        np.concatenate(images, axis=1),
        first.caption_ids,
        first.caption_image_ids,
        np.concatenate(captions, axis=1),
        "dot",
        {
            "ensemble": [member.provenance for member in members],
            "weights": weights,
        },
    )


def _positions(
    wanted: Sequence[str], found: Sequence[str], side: str, number: int
) -> npt.NDArray[np.int64]:
    """Return the row in `found` of each id in `wanted`."""
    row_of = {one: row for row, one in enumerate(found)}
    if row_of.keys() != set(wanted):
        other = sorted(row_of.keys() ^ set(wanted))
        raise EmbeddingsError(
            f"member {number} has {len(found)} {side} and member 1 has {len(wanted)}; "
            f"{len(other)} ids are not in both, first {other[:5]}: embed the same split"
        )
    return np.array([row_of[one] for one in wanted], np.int64)


def _scaled(rows: _Rows, length: float) -> _Rows:
    return unit_rows(rows).astype(np.float32) * np.float32(length)
