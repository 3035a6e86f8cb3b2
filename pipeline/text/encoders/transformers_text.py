"""Text towers of dual encoders of transformers, which are loaded with all that they need."""

from pathlib import Path
from typing import ClassVar

from pipeline.text.encoders.base import CaptionEncoder, Encoder, Words
from pipeline.text.encoders.options import TowerOptions


class TransformersTextTower(Encoder):
    """The text tower of a model, in the space of its image tower."""

    Options: ClassVar = TowerOptions
    named_by_model: ClassVar = True

    @classmethod
    def load(cls, options: TowerOptions, folder: Path, words: Words) -> CaptionEncoder:
        # Imported here: these import torch.
        from pipeline.images.networks.transformers_models import TransformersModel
        from pipeline.text.transformers_text import TransformersText

        return TransformersText(TransformersModel(options.model), options.weights)
