"""Adapter of a trained head to MTEB's image-text retrieval tasks (mteb 2 or newer)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.heads.finetuning import WEIGHTS_FILE
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.trained_head import load_head
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query.query_embedding import embed_pictures
from pipeline.retrieval.query.query_models import open_encoder, open_network
from pipeline.retrieval.search import SYMMETRIC
from pipeline.retrieval.similarity import Vectors
from pipeline.retrieval.torch_scores import SCORES
from pipeline.store.extras import require
from pipeline.store.hashing import sha256_of_json


class MtebEncoder:
    """Model for `mteb.evaluate`: embeds batches of images or texts with a trained head.

    The image network is loaded on first use. A text without a known word is embedded as by
    `pipeline embed`.

    Parameters
    ----------
    head, encoder : str or Path. Folders of the head and of the fitted sentence encoder that it was
        fitted on. The head's similarity must be symmetric: MTEB compares queries with documents and
        does not state which of them are images.
    weights : str or None. Weights of the image network; None: as recorded in the head.

    Examples
    --------
    >>> model = MtebEncoder("data/heads/mine/vsepp", "data/text/mine/mean.encoder")
    >>> mteb.evaluate(model, mteb.get_tasks(["Flickr30kT2IRetrieval"]))
    """

    def __init__(
        self, head: str | Path, encoder: str | Path, *, weights: str | None = None
    ) -> None:
        folder = Path(head)
        self.trained = load_head(folder)
        if (name := self.trained.head.similarity) not in SYMMETRIC:
            raise EmbeddingsError(
                f"the head of {self.trained.experiment!r} has the similarity {name}, which is not "
                f"symmetric in image and text; MTEB needs one of {', '.join(SYMMETRIC)}"
            )
        self._encoder = open_encoder(self.trained, Path(encoder), None)
        if weights is None and self.trained.finetuning is not None:
            weights = str(folder / WEIGHTS_FILE)
        self._weights = weights
        self._network: Any = None

    def encode(self, inputs: Iterable[Mapping[str, Any]], **context: Any) -> Vectors:
        """Return the embeddings (rows, dim) float32 of all batches, each with `image` or `text`."""
        return np.concatenate([self._of_batch(batch) for batch in inputs])

    def similarity(self, first: Any, second: Any) -> torch.Tensor:
        """Return the similarities (n, m) float64 of rows (n, dim) and (m, dim)."""
        return SCORES[self.trained.head.similarity](_tensor(first), _tensor(second))

    def similarity_pairwise(self, first: Any, second: Any) -> torch.Tensor:
        """Return the similarities (n,) float64 of rows (n, dim) with rows (n, dim)."""
        rows = zip(_tensor(first), _tensor(second), strict=True)
        return torch.stack([self.similarity(a[None], b[None])[0, 0] for a, b in rows])

    @property
    def mteb_model_meta(self) -> Any:
        """MTEB's description of the model; its revision is a hash of the head's provenance."""
        models = require("mteb.models", "MtebEncoder needs")
        return models.ModelMeta.create_empty(
            {
                "name": f"caption-feature-pipeline/{self.trained.experiment}",
                "revision": sha256_of_json(self.trained.provenance)[:12],
                "modalities": ["text", "image"],
            }
        )

    def _of_batch(self, batch: Mapping[str, Any]) -> Vectors:
        images: Any = batch.get("image")
        texts: Any = batch.get("text")
        if (images is None) == (texts is None):
            raise EmbeddingsError(
                f"a batch has the columns {', '.join(batch)}; a head embeds images or texts, so "
                "choose tasks of the categories i2t and t2i"
            )
        if texts is not None:
            rows = np.asarray(self._encoder.encode(list(texts)), np.float32)
            return self.trained.head.embed_captions(ArrayRows(rows))
        if self._network is None:
            self._network = open_network(self.trained, self._weights)
        return embed_pictures(self.trained, self._network, list(images))


def _tensor(rows: Any) -> torch.Tensor:
    return torch.as_tensor(np.ascontiguousarray(rows)).double()
