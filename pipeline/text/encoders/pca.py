"""The rows of another encoder on their principal components."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.hashing import sha256_of_json
from pipeline.text.encoders.base import CaptionEncoder, VocabularyReport
from pipeline.text.pca.components import PrincipalComponents

_CHUNK = 256  # captions multiplied at once: never fewer, see `Pca.encode`


@dataclass(frozen=True, eq=False)
class Pca:
    """The rows of an encoder on their principal components, not whitened, not normalised.

    Attributes
    ----------
    encoder : the encoder that the components were fitted to.
    basis : the components.

    Raises
    ------
    PcaError
        The components were fitted to another encoder.
    """

    encoder: CaptionEncoder
    basis: PrincipalComponents

    def __post_init__(self) -> None:
        self.basis.check(self.encoder)

    @property
    def name(self) -> str:
        """`<encoder>-pca<dim>`."""
        return f"{self.encoder.name}-pca{self.dim}"

    @property
    def dim(self) -> int:
        """Length of each row."""
        return self.basis.dim

    @property
    def weights(self) -> tuple[str, str]:
        """The encoder's and the components."""
        name, sha256 = self.encoder.weights
        both = {"encoder": sha256, "projection": self.basis.sha256}
        return f"{name}, PCA", sha256_of_json(both)

    @property
    def trained_on(self) -> tuple[str, ...]:
        """What the encoder was trained on."""
        return self.encoder.trained_on

    @property
    def memory(self) -> int:
        """Bytes of the encoder, the components and the rows that are multiplied at once."""
        at_once = 4 * _CHUNK * (2 * self.encoder.dim + self.dim)
        return self.encoder.memory + self.basis.components.nbytes + at_once

    def recipe(self) -> dict[str, Any]:
        """Return everything that decides the rows but the weights, as JSON values."""
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
        """Encode captions.

        Every product is of 256 rows, also where fewer are asked for: products of other sizes are
        summed in another order, so that a caption's row would depend on its batch in its last
        bits. One caption therefore takes as long as 256.

        Returns
        -------
        (texts, dim) float32
        """
        import torch  # here: most encoders run without it, and it takes seconds to import

        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        # Captions are the columns of the right factor: MKL sums every column in the same order.
        # With captions as rows its order varies with the position, and so does OpenBLAS's.
        columns = torch.zeros((self.encoder.dim, _CHUNK))
        components = torch.from_numpy(self.basis.components).T
        for start in range(0, len(texts), _CHUNK):
            chunk = self.encoder.encode(texts[start : start + _CHUNK])
            columns[:, : len(chunk)] = torch.from_numpy(chunk - self.basis.mean).T
            rows[start : start + _CHUNK] = (components @ columns)[:, : len(chunk)].T.numpy()
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Return the encoder's reports."""
        return self.encoder.reports(texts)
