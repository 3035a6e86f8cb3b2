"""Concatenation of several sentence encoders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from pipeline.store.hashing import sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.encoders.base import CaptionEncoder, Encoder, Fitting, VocabularyReport, Words
from pipeline.text.encoders.options import OfEncoders
from pipeline.text.encoders.registry import class_of


class Concatenation(Encoder):
    """The concatenated rows of two or more encoders, in column order; repetitions are allowed.

    Dong et al. 2018 (Word2VisualVec), eq. (4): bag of words, word2vec and a GRU, whose token ids
    are a part here.
    """

    Options: ClassVar = OfEncoders

    def __init__(self, encoders: Sequence[CaptionEncoder]) -> None:
        """Store the encoders; names are joined by "+", weights are hashed as a list."""
        if len(encoders) < 2:
            given = ", ".join(encoder.name for encoder in encoders) or "none"
            raise EncoderError(
                f"a concatenation needs two encoders or more, found {given}; use a single one alone"
            )
        self.encoders = tuple(encoders)
        self.name = "+".join(encoder.name for encoder in encoders)
        self.dim = sum(encoder.dim for encoder in encoders)
        names, hashes = zip(*(encoder.weights for encoder in encoders), strict=True)
        self.weights = "; ".join(names), sha256_of_json(list(hashes))
        self.trained_on = tuple(dict.fromkeys(name for e in encoders for name in e.trained_on))
        self.memory = sum(encoder.memory for encoder in encoders)
        plugins = {getattr(encoder, "plugin", "") for encoder in encoders} - {""}
        self.plugin = ", ".join(sorted(plugins))

    @classmethod
    def fit(cls, options: OfEncoders, folder: Path, fitting: Fitting, words: Words) -> Self:
        return cls([class_of(part).fit(part, folder, fitting, words) for part in options.members])

    @classmethod
    def load(cls, options: OfEncoders, folder: Path, words: Words) -> Self:
        return cls([class_of(part).load(part, folder, words) for part in options.members])

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
