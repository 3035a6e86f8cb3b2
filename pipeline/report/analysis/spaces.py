"""Where the sentences of some images lie in the space of their embeddings."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.geometry import principal_plane
from pipeline.retrieval.similarity import unit_rows

Place = tuple[float, float]


def sentence_plane(
    embeddings: Embeddings, wanted: Sequence[str]
) -> tuple[dict[str, tuple[Place, ...]], tuple[float, float]]:
    """Place the sentences of the wanted images in their principal plane; with its two shares."""
    of_image = [
        [row for row, image in enumerate(embeddings.caption_image_ids) if image == one]
        for one in wanted
    ]
    rows = embeddings.caption_embeddings[[row for captions in of_image for row in captions]]
    flat, shares = principal_plane(as_compared(rows, embeddings.similarity))
    left = iter(flat.tolist())
    places = {
        one: tuple((x, y) for x, y in islice(left, len(captions)))
        for one, captions in zip(wanted, of_image, strict=True)
    }
    return places, shares


def as_compared(rows: npt.NDArray[np.float32], similarity: str) -> npt.NDArray[np.floating]:
    """Return rows as their similarity sees them: at length 1 where lengths do not count."""
    return unit_rows(rows) if similarity == "cosine" else rows
