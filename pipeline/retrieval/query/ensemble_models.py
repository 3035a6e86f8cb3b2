"""Embedding of queries for an ensemble, by the models of all members."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ensemble import shares
from pipeline.retrieval.query.picture_features import PictureFeatures
from pipeline.retrieval.query.query_models import QueryModels
from pipeline.retrieval.similarity import Vectors, unit_rows


@dataclass(frozen=True)
class _Member:
    provenance: Mapping[str, Any]


class EnsembleModels:
    """Embeds queries in the space of an ensemble, as `QueryModels`; not thread-safe."""

    def __init__(
        self,
        embeddings: Embeddings,
        file: Path,
        folders: Sequence[tuple[Path, Path]],
        weights: str | None = None,
    ) -> None:
        """Store the folders of head and encoder of each member; models are loaded on first use."""
        provenance = embeddings.provenance
        members = provenance.get("ensemble")
        if not isinstance(members, list) or len(members) != len(folders):
            raise EmbeddingsError(
                f"{file} is not an ensemble of {len(folders)} members; rebuild it with "
                "`pipeline ensemble`"
            )
        self._shares = shares([float(weight) for weight in provenance["weights"]])
        self._members = [
            QueryModels(_Member(recorded), file, head=head, encoder=encoder, weights=weights)
            for recorded, (head, encoder) in zip(members, folders, strict=True)
        ]

    @property
    def network(self) -> Sequence[PictureFeatures]:
        """The image networks of all members."""
        return [member.network for member in self._members]

    def keep_encoder(self, likely: Sequence[str]) -> None:
        """Load the sentence encoders for many queries."""
        for member in self._members:
            member.keep_encoder(likely)

    def embed_sentences(self, texts: Sequence[str], log: Callable[[str], None]) -> Vectors:
        """Embed sentences or words; each text needs a word known to every member."""
        return self._joined([member.embed_sentences(texts, log) for member in self._members])

    def without_known_word(self, texts: Sequence[str]) -> set[int]:
        """Return the positions of the texts without a word known to every member."""
        return {at for member in self._members for at in member.without_known_word(texts)}

    def embed_picture(self, picture: Path | Image.Image) -> Vectors:
        """Embed an image, given as a path or decoded, as one query."""
        return self._joined([member.embed_picture(picture) for member in self._members])

    def _joined(self, rows: Sequence[Vectors]) -> Vectors:
        parts = [
            (r if member.corrected else unit_rows(r)) * share
            for member, r, share in zip(self._members, rows, self._shares, strict=True)
        ]
        return np.concatenate(parts, axis=1).astype(np.float32)
