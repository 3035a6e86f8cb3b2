"""Concatenation of several sentence encoders."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.hashing import sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.encoders.base import CaptionEncoder, VocabularyReport


@dataclass(frozen=True)
class Concatenation:
    """The concatenated rows of two or more encoders, in column order; repetitions are allowed.

    Dong et al. 2018 (Word2VisualVec), eq. (4): bag of words, word2vec and a GRU, whose token ids
    are a part here.
    """

    encoders: tuple[CaptionEncoder, ...]

    def __post_init__(self) -> None:
        if len(self.encoders) < 2:
            given = ", ".join(encoder.name for encoder in self.encoders) or "none"
            raise EncoderError(
                f"a concatenation needs two encoders or more, found {given}; use a single one alone"
            )

    @property
    def name(self) -> str:
        """The encoders' names joined by "+"."""
        return "+".join(encoder.name for encoder in self.encoders)

    @property
    def dim(self) -> int:
        return sum(encoder.dim for encoder in self.encoders)

    @property
    def weights(self) -> tuple[str, str]:
        """The encoders' weight names, and the SHA-256 of the list of their SHA-256."""
        names, hashes = zip(*(encoder.weights for encoder in self.encoders), strict=True)
        return "; ".join(names), sha256_of_json(list(hashes))

    @property
    def trained_on(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for e in self.encoders for name in e.trained_on))

    @property
    def memory(self) -> int:
        return sum(encoder.memory for encoder in self.encoders)

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "concatenation",
            "parts": [encoder.recipe() for encoder in self.encoders],
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        column = 0
        for encoder in self.encoders:
            rows[:, column : column + encoder.dim] = encoder.encode(texts)
            column += encoder.dim
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Return the encoders' reports by name; a second one of the same name is "<name> (2)"."""
        merged: dict[str, VocabularyReport] = {}
        for encoder in self.encoders:
            for name, report in encoder.reports(texts).items():
                key, number = name, 1
                while key in merged and merged[key] != report:
                    number += 1
                    key = f"{name} ({number})"
                merged[key] = report
        return merged
