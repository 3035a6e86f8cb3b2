"""Text towers of open_clip models, which are loaded with all that they need."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipeline.text.encoders.base import CaptionEncoder, Encoder, Words
from pipeline.text.encoders.options import EncoderOptions, encoder_option


@dataclass(frozen=True)
class OpenClipOptions(EncoderOptions):
    """Options of `OpenClipText`."""

    weights: str = encoder_option(
        "pretrained",
        help="open_clip models: PATH of a weights file, or random:SEED.  [default: those of the "
        "tag in the encoder's name]",
    )


class OpenClipText(Encoder):
    """The text tower of a model, in the space of its image tower."""

    Options: ClassVar = OpenClipOptions
    named_by_model: ClassVar = True

    @classmethod
    def load(cls, options: OpenClipOptions, folder: Path, words: Words) -> CaptionEncoder:
        # Imported here: these import torch.
        from pipeline.images.networks.open_clip_models import find_clip_model
        from pipeline.text.open_clip_text import OpenClip

        return OpenClip(find_clip_model(options.name), options.weights)
