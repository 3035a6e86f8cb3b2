"""Search by image in a feature set, by the cosine of features, without a head."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.composition import ids_and_scores
from pipeline.retrieval.search import Gallery, nearest
from pipeline.retrieval.similarity import row_vectors
from pipeline.store.errors import WrongUsage
from pipeline.store.objects.urls import url_of
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK

if TYPE_CHECKING:
    from PIL import Image

    from pipeline.retrieval.query.picture_features import PictureFeatures

_BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class Similar:
    """One hit."""

    rank: int  # from 1
    score: float  # cosine to the query
    id: str  # row id


class FeatureSearcher:
    """Finds the rows of a feature set that are nearest to an image, by the cosine of features.

    Rows of several vectors, such as grids, are compared by their mean vector; failed rows are
    skipped. Neither a dataset nor a head is needed: an image file is passed through the network of
    the features' recipe. Not thread-safe.

    Parameters
    ----------
    features : str or Path. Folder of the shards, of any recipe.
    weights : str or None. Weights of the image network, as for `pipeline extract`; None: as
        recorded in the features.

    Examples
    --------
    >>> searcher = FeatureSearcher("data/features/mine/efficientnet-lite0-pool")
    >>> for hit in searcher.by_image("scene-00000", top=2):
    ...     print(hit.rank, hit.id)
    1 scene-...
    2 scene-...
    """

    def __init__(self, features: str | Path, *, weights: str | None = None) -> None:
        self.features: FeatureSet = FeatureSet(Path(features))
        self.searched: npt.NDArray[np.int64] = np.flatnonzero(self.features.status == OK)
        self._weights = weights
        if not len(self.searched):
            raise EmbeddingsError(
                f"{features}: none of the {len(self.features)} rows has features, so there is "
                "nothing to search; `pipeline extract` states why each failed"
            )

    @cached_property
    def network(self) -> "PictureFeatures":
        """The network of the features' recipe."""
        # Here, since they import torch, which takes seconds.
        from pipeline.heads.inputs.feature_spec import FeatureSpec
        from pipeline.retrieval.query.picture_features import open_features

        return open_features(
            FeatureSpec.of(self.features), str(self.features.folder), self._weights
        )

    def by_image(self, image: "str | Path | Image.Image", *, top: int = 5) -> list[Similar]:
        """Return the rows nearest to a row id, image file or image, best first; ties by id."""
        if top < 1:
            raise WrongUsage(f"`top={top}` is below 1; pass a positive number")
        query_id = image if isinstance(image, str) and image in self.features.ids else None
        query = row_vectors(self._row_of(image, query_id))
        hits = [
            (-score, row_id)
            for gallery in self._galleries()
            for row_id, score in ids_and_scores(
                nearest(gallery, query, "images", top + 1), gallery, leave_out=query_id
            )[0]
        ]
        best = sorted(hits)[:top]
        return [Similar(rank, -score, row_id) for rank, (score, row_id) in enumerate(best, 1)]

    def _row_of(self, image: "str | Path | Image.Image", query_id: str | None) -> npt.NDArray:
        """Return the features of a query, (1, *row_shape)."""
        if query_id is not None:
            return self.features.read([query_id])
        if isinstance(image, str):
            if url_of(image) is None and not Path(image).is_file():
                raise EmbeddingsError(
                    f"{image!r} is neither an id of {self.features.folder} nor a file; pass one of "
                    f"them (ids there look like {self.features.ids[0]!r})"
                )
            image = Path(image)
        return self.network.of(image)

    def _galleries(self) -> Iterator[Gallery]:
        """Yield all rows with features, in blocks of bounded size."""
        step = max(1, _BLOCK_BYTES // self.features.index.header.row_bytes)
        for start in range(0, len(self.searched), step):
            rows = self.searched[start : start + step]
            ids = [self.features.ids[row] for row in rows.tolist()]
            yield Gallery("images", ids, row_vectors(self.features.read_rows(rows)), "cosine")
