"""Fisher vectors of captions under one or several codebooks, concatenated."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.hashing import sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.encoders.base import CaptionEncoder, Parts, VocabularyReport, report_on_texts
from pipeline.text.fisher.codebook import Codebook
from pipeline.text.fisher.gradients import WordGradients, power_and_l2, word_gradients
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vectors import WordVectors

_NUMBERS_AT_ONCE = 1 << 21  # numbers per block of rows: 8 MiB fit into the caches


@dataclass(frozen=True, eq=False)
class FisherVector:
    """Fisher vector of a caption's words under each of several mixtures.

    Klein et al. 2015: L2-normalised word vectors are whitened and L2-normalised again (times 10
    for mixtures with Laplacians); the Fisher vector is signed-square-rooted and L2-normalised.
    With several codebooks, each one's vector is L2-normalised separately and they are concatenated
    in the given order (their "GMM+HGLMM"). Tokens without a word vector are ignored, also in the
    word count T; a caption without a known token becomes zero.
    """

    codebooks: tuple[Codebook, ...]  # fitted on `vectors`, or on others of the same source
    vectors: WordVectors  # of the words in captions only: each has its gradients in memory
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        if not self.codebooks:
            raise EncoderError("a Fisher vector needs a codebook, found none; fit one")
        for codebook in self.codebooks:
            codebook.require_vectors(self.vectors, f"the {codebook.metadata.kind} codebook")

    @property
    def name(self) -> str:
        """`fv-<kind>-<vectors>`, such as "fv-gmm-hglmm-glove-6b-50d" for two codebooks."""
        kinds = [codebook.metadata.kind for codebook in self.codebooks]
        return "-".join(("fv", *kinds, self.vectors.name))

    @property
    def dim(self) -> int:
        """The sum of 2 K D over the codebooks."""
        return sum(2 * c.mixture.components * c.mixture.dim for c in self.codebooks)

    @property
    def weights(self) -> tuple[str, str]:
        kinds = "+".join(codebook.metadata.kind for codebook in self.codebooks)
        return f"{self.vectors.name}, {kinds}", self._sha256

    @property
    def trained_on(self) -> tuple[str, ...]:
        return self.vectors.trained_on

    @property
    def memory(self) -> int:
        """Upper bound of the table of gradients of all words of `vectors`, in bytes."""
        return 4 * len(self.vectors.words) * self.dim

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "fisher vector",
            "tokens": self.tokenizer.to_json(),
            "vectors": self.vectors.name,
            "codebooks": [_account(codebook) for codebook in self.codebooks],
            "normalisation": "signed square root, then norm 1, for each codebook",
            "oov": "ignored, also in the number of words; zero vector if no token is known",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32: norm 1 for each codebook, or 0."""
        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        step = max(1, _NUMBERS_AT_ONCE // self.dim)
        for start in range(0, len(texts), step):
            self._encode_into(rows[start : start + step], texts[start : start + step])
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        return {self.name: report_on_texts(texts, self.tokenizer, self.vectors.index)}

    def _encode_into(self, rows: npt.NDArray[np.float32], texts: Sequence[str]) -> None:
        index, tokenize = self.vectors.index, self.tokenizer.tokenize
        positions = [[index[t] for t in tokenize(text) if t in index] for text in texts]
        lengths = np.array([*map(len, positions)], dtype=np.int64)
        words = np.array([word for row in positions for word in row], dtype=np.int64)
        column = 0
        for gradients in self._gradients:
            part = rows[:, column : column + 2 * gradients.components * gradients.dim]
            power_and_l2(gradients.fisher_vectors(words, lengths, part))
            column += part.shape[1]

    @cached_property
    def _gradients(self) -> tuple[WordGradients, ...]:
        return tuple(
            word_gradients(codebook.mixture, codebook.transform(self.vectors.matrix))
            for codebook in self.codebooks
        )

    @cached_property
    def _sha256(self) -> str:
        fitted = [codebook.sha256 for codebook in self.codebooks]
        return sha256_of_json({"vectors": self.vectors.sha256, "codebooks": fitted})


def _account(codebook: Codebook) -> dict[str, Any]:
    """Return settings and data of a codebook's fit, without software versions."""
    fitted_to = codebook.metadata.to_json()
    del fitted_to["created_by"]
    return {**fitted_to, "components": codebook.mixture.components}


def assemble(parts: Parts) -> CaptionEncoder:
    return FisherVector(parts.codebooks(), parts.vectors, parts.tokenizer)
