"""The mean of a caption's word vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.text.encoders import VocabularyReport, report_on
from pipeline.text.policies import POLICIES
from pipeline.text.vectors import WordVectors

_POLICY = POLICIES["treebank"]
_CHUNK = 1024  # captions summed at once, which bounds the float64 rows in memory


@dataclass(frozen=True, eq=False)
class MeanVectors:
    """The mean of a caption's word vectors.

    Dong et al. 2018 (Word2VisualVec), eq. (2). Deviations: the denominator is the number of
    tokens that have a vector, not the sentence's length (so do the authors' own programs), and
    no stop words are removed. Repeats count as often as they occur. A caption without a known
    token gets the zero vector. Word vectors are taken as they are, not normalised.
    """

    vectors: WordVectors

    @property
    def name(self) -> str:
        """`mean-<vectors>`."""
        return f"mean-{self.vectors.name}"

    @property
    def dim(self) -> int:
        """Length of each row: the word vectors' own."""
        return self.vectors.dim

    @property
    def weights(self) -> tuple[str, str]:
        """The word vectors."""
        return self.vectors.name, self.vectors.sha256

    def recipe(self) -> dict[str, Any]:
        """Return what makes the rows."""
        return {
            "name": self.name,
            "encoder": "mean",
            "tokens": _POLICY.to_json(),
            "vectors": self.vectors.name,
            "oov": "ignored, also in the denominator; zero vector if no token is known",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Encode captions.

        Returns
        -------
        (texts, dim) float32
            Summed and divided in float64, so a caption's row is the same in any company.
        """
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), _CHUNK):
            self._encode_into(rows[start : start + _CHUNK], texts[start : start + _CHUNK])
        return rows

    def report(self, texts: Sequence[str]) -> VocabularyReport:
        """Count which words have no vector."""
        return report_on([_POLICY.tokenize(text) for text in texts], self.vectors.index)

    def _encode_into(self, rows: npt.NDArray[np.float32], texts: Sequence[str]) -> None:
        index = self.vectors.index
        found = [[index[t] for t in _POLICY.tokenize(text) if t in index] for text in texts]
        counts = np.array([len(f) for f in found], dtype=np.int64)
        some = np.flatnonzero(counts)
        if not len(some):
            return
        words = self.vectors.matrix[[row for f in found for row in f]].astype(np.float64)
        # Only captions with a known word: reduceat does not give 0 for an empty segment.
        starts = np.concatenate(([0], np.cumsum(counts[some])[:-1]))
        sums = np.add.reduceat(words, starts, axis=0)
        rows[some] = sums / counts[some, None]
