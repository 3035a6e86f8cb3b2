"""Projection of another encoder's rows on principal components."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.hashing import sha256_of_json
from pipeline.text.encoders.base import CaptionEncoder, VocabularyReport
from pipeline.text.pca.components import PrincipalComponents

# Captions per product, a constant, also for fewer: products of other sizes are summed in another
# order, which would change a row's last bits.
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class Pca:
    """An encoder's rows projected on their principal components, not whitened or normalised."""

    encoder: CaptionEncoder  # that the components were fitted on
    basis: PrincipalComponents

    def __post_init__(self) -> None:
        self.basis.check(self.encoder)

    @property
    def name(self) -> str:
        """`<encoder>-pca<dim>`."""
        return f"{self.encoder.name}-pca{self.dim}"

    @property
    def dim(self) -> int:
        return self.basis.dim

    @property
    def weights(self) -> tuple[str, str]:
        name, sha256 = self.encoder.weights
        both = {"encoder": sha256, "projection": self.basis.sha256}
        return f"{name}, PCA", sha256_of_json(both)

    @property
    def trained_on(self) -> tuple[str, ...]:
        return self.encoder.trained_on

    @property
    def memory(self) -> int:
        """Memory of encoder, components and one block of rows, in bytes."""
        at_once = 4 * _CHUNK * (2 * self.encoder.dim + self.dim)
        return self.encoder.memory + self.basis.components.nbytes + at_once

    def recipe(self) -> dict[str, Any]:
        fitted_to = self.basis.metadata
        return {
            "name": self.name,
            "encoder": "principal components",
            "of": self.encoder.recipe(),
            "captions": fitted_to.captions,
            "captions_sha256": fitted_to.captions_sha256,
            **({} if fitted_to.requested is None else {"requested": fitted_to.requested}),
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32; one caption costs as much as 256."""
        import torch  # here: most encoders do not need it, and it takes seconds to import

        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        # Captions are columns of the right factor, which MKL sums in one order for all columns.
        # As rows, the order would vary with the position, in MKL and in OpenBLAS.
        columns = torch.zeros((self.encoder.dim, _CHUNK))
        components = torch.from_numpy(self.basis.components).T
        for start in range(0, len(texts), _CHUNK):
            chunk = self.encoder.encode(texts[start : start + _CHUNK])
            columns[:, : len(chunk)] = torch.from_numpy(chunk - self.basis.mean).T
            rows[start : start + _CHUNK] = (components @ columns)[:, : len(chunk)].T.numpy()
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        return self.encoder.reports(texts)
