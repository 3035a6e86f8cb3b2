"""Sentence transformers, with their own tokenizer, pooling and normalisation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.text.encoders.base import CaptionEncoder, Parts, VocabularyReport, report_on
from pipeline.text.sentence_model import SentenceModel, sentence_model


@dataclass(frozen=True, eq=False)
class SentenceTransformer:
    """The sentence vectors of a model; captions longer than its context are truncated."""

    model: SentenceModel

    @property
    def name(self) -> str:
        """`sentence-transformer:<model>`."""
        return f"sentence-transformer:{self.model.name}"

    @property
    def dim(self) -> int:
        return self.model.dim

    @property
    def weights(self) -> tuple[str, str]:
        return self.model.name, self.model.sha256

    @property
    def trained_on(self) -> tuple[str, ...]:
        return self.model.trained_on

    @property
    def memory(self) -> int:
        return self.model.memory

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "sentence-transformer",
            "prompt": self.model.prompt,
            "max_length": self.model.max_length,
            "too long": "last word pieces cut off",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return self.model.encode(texts)

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count unknown word pieces and truncated captions."""
        whole = self.model.pieces(texts)
        most = self.model.max_length
        room = max(map(len, whole), default=0) if most is None else most - self.model.marks
        cut = [at for at, pieces in enumerate(whole) if len(pieces) > room]
        shown = [pieces[:room] for pieces in whole]
        vocabulary = {piece for pieces in shown for piece in pieces} - {self.model.unknown}
        row = "the row of unknown words"
        return {self.name: report_on(shown, vocabulary, unknown_row=row, cut=cut)}


def assemble(parts: Parts) -> CaptionEncoder:
    return SentenceTransformer(sentence_model(parts.option("model")))
