"""Text towers of open_clip models, which are loaded with all that they need."""

from pathlib import Path
from typing import ClassVar

from pipeline.text.encoders.base import CaptionEncoder, Encoder, Words
from pipeline.text.encoders.options import TowerOptions


class OpenClipText(Encoder):
    """The text tower of a model, in the space of its image tower."""

    Options: ClassVar = TowerOptions
    named_by_model: ClassVar = True

    @classmethod
    def load(cls, options: TowerOptions, folder: Path, words: Words) -> CaptionEncoder:
        # Imported here: these import torch.
        from pipeline.images.networks.open_clip_models import find_clip_model
        from pipeline.text.open_clip_text import OpenClip

        return OpenClip(find_clip_model(options.name), options.weights)
