"""Sentence transformers, with their own tokenizer, pooling and normalisation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from pipeline.store.extras import require_installed
from pipeline.text.encoders.base import Encoder, VocabularyReport, Words, report_on_pieces
from pipeline.text.encoders.options import EncoderOptions, encoder_option

if TYPE_CHECKING:
    from pipeline.text.sentence_model import SentenceModel


@dataclass(frozen=True)
class SentenceTransformerOptions(EncoderOptions):
    """Options of `SentenceTransformer`."""

    pooling: str | None = encoder_option(
        None,
        choices=("mean", "cls", "max"),
        help="Sentence transformers: token pooling for a transformers model without modules.json.  "
        "[default: that of the model]",
    )


class SentenceTransformer(Encoder):
    """The sentence vectors of a model; captions longer than its context are truncated."""

    Options: ClassVar = SentenceTransformerOptions
    named_by_model: ClassVar = True

    def __init__(self, model: "SentenceModel") -> None:
        """Store the model; the name is `sentence-transformer:<model>`."""
        self.model = model
        self.name = f"sentence-transformer:{model.name}"
        self.dim = model.dim
        self.weights = model.name, model.sha256
        self.trained_on = model.trained_on
        self.memory = model.memory

    @classmethod
    def require(cls, options: SentenceTransformerOptions) -> None:
        require_installed("sentence_transformers", "sentence transformers need")

    @classmethod
    def load(cls, options: SentenceTransformerOptions, folder: Path, words: Words) -> Self:
        # Imported here: it imports torch.
        from pipeline.text.sentence_model import sentence_model

        return cls(sentence_model(options.model, options.pooling))

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "sentence-transformer",
            **({"pooling": self.model.pooling} if self.model.pooling else {}),
            "prompt": self.model.prompt,
            "max_length": self.model.max_length,
            "too long": "last word pieces cut off",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return self.model.encode(texts)

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count unknown word pieces and truncated captions."""
        model, row = self.model, "the row of unknown words"
        room = None if model.max_length is None else model.max_length - model.marks
        return {self.name: report_on_pieces(model.pieces(texts), room, model.unknown, row)}
