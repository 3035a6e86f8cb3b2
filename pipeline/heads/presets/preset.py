"""Presets: a published system at the size of its paper, and the changes for smaller sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.heads.head_types import CaptionFeatures, Finetuning

Size = Literal["paper", "small", "tiny"]

POOLED_IMAGES = "efficientnet-lite0-pool"

# Names of word vectors that `pipeline vectors` stores.
GLOVE_300, GOOGLENEWS = "glove-6b-300d", "word2vec-googlenews-300d"
GLOVE_50, OWN_VECTORS = "glove-6b-50d", "word2vec-100d"
"""Word vectors of the small size: from a package, and trained on the dataset."""


@dataclass(frozen=True)
class Changes:
    """Changes of a preset for the size "small"."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    captions: CaptionFeatures | None = None  # None: unchanged
    word_vectors: str | None = None  # None: random initialisation
    finetuning: Mapping[str, Any] = field(default_factory=dict)
    images: str = POOLED_IMAGES


@dataclass(frozen=True)
class Preset:
    """A published system with the values of its paper and of the smaller sizes."""

    head: str  # a name in `head_types.HEADS`
    settings: Any  # settings dataclass of the head
    images: str  # recipe of the image features
    captions: CaptionFeatures
    source: str  # where the values are published
    leaves_open: str = ""  # our choices where the source is silent, and our deviations
    word_vectors: str | None = None  # initial; None: random
    average_captions: bool = False  # the captions of an image are averaged to one
    finetuning: Finetuning | None = None
    of_phrases: bool = False  # fitted on regions and phrases
    of_clips: bool = False  # `images` is a recipe for clips
    slow: bool = False  # most of an hour without a GPU; `pipeline run all` skips it
    # Preset whose head continues training, with boxes that it mined.
    goes_on_from: str | None = None
    small: Changes = Changes()  # for two cores and a few thousand images
    # Further settings, for a few hundred images.
    tiny: Mapping[str, Any] = field(default_factory=dict)

    def at(self, size: Size) -> "Preset":
        """Return the preset with the values of a size."""
        if size == "paper":
            return self
        small, tiny = self.small, self.tiny if size == "tiny" else {}
        tuned = self.finetuning
        return replace(
            self,
            settings=replace(self.settings, **{**small.settings, **tiny}),
            images=small.images,
            captions=small.captions or self.captions,
            word_vectors=small.word_vectors,
            finetuning=tuned and replace(tuned, **small.finetuning),
        )


def with_settings(preset: Preset, **settings: Any) -> Preset:
    """Return a preset with changed settings at the size of the paper."""
    return replace(preset, settings=replace(preset.settings, **settings))


def features(name: str, encoder: str | None = None, **options: Any) -> CaptionFeatures:
    """Return caption features, by default named after their encoder."""
    return CaptionFeatures(name, encoder or name, options)


TOKEN_IDS = features("token-ids")
# Their caption files are tokenised, joined by spaces; Treebank tokens with punctuation match them.
KIROS_TOKEN_IDS = features("token-ids-kiros", tokenizer="vsepp")
MEAN_GLOVE_50 = features("mean-glove-6b-50d", "mean")
FISHER_1000 = features("fv-hglmm-pca1000", "fv-hglmm", sample=20_000, pca=1000)

# Few images mean few updates, which need a higher learning rate; tuned on Flickr8k's dev images.
SMALL_GRU: dict[str, Any] = {"dim": 256, "image_scaling": "unit", "learning_rate": 0.004}
