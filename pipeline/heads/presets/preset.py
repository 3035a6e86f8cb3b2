"""A preset: a published system at the size of its paper, and what its smaller sizes change."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.heads.head_types import CaptionFeatures, Finetuning

Size = Literal["paper", "small", "tiny"]

POOLED_IMAGES = "efficientnet-lite0-pool"

# Word vectors by the name under which `pipeline vectors` stores them.
GLOVE_300, GOOGLENEWS = "glove-6b-300d", "word2vec-googlenews-300d"
GLOVE_50, OWN_VECTORS = "glove-6b-50d", "word2vec-100d"
"""Word vectors of the small size: those of a package, and those trained on the dataset itself."""


@dataclass(frozen=True)
class Changes:
    """What the size "small" changes in a preset.

    Attributes
    ----------
    settings : of the head, over those of the paper.
    captions : in place of the paper's; None leaves those.
    word_vectors : in place of the paper's; None starts words at random.
    finetuning : over that of the paper.
    images : recipe in place of the paper's.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    captions: CaptionFeatures | None = None
    word_vectors: str | None = None
    finetuning: Mapping[str, Any] = field(default_factory=dict)
    images: str = POOLED_IMAGES


@dataclass(frozen=True)
class Preset:
    """A published system with its paper's own values, and its values at the smaller sizes.

    Attributes
    ----------
    head : a name in `pipeline.heads.head_types.HEADS`.
    settings : the head's settings.
    images : recipe of the image features.
    captions : caption features.
    source : where the values are published.
    leaves_open : what the source does not say, or what is not as it says, and what stands here.
    word_vectors : name of the vectors that words start from; None starts them at random.
    average_captions : whether the mean of an image's captions is its one caption.
    finetuning : how head and image network learn on together; None: they do not.
    of_phrases : whether it is fitted on regions and phrases in place of images and captions.
    of_clips : whether `images` is a recipe of clips.
    slow : whether its training takes the better part of an hour without a GPU; `pipeline run all`
        leaves it out then.
    goes_on_from : preset whose trained head it goes on from, with boxes mined by that head.
    small : what the size for two cores and a few thousand images changes.
    tiny : settings of the head at the size for a few hundred images, over those of `small`.
    """

    head: str
    settings: Any
    images: str
    captions: CaptionFeatures
    source: str
    leaves_open: str = ""
    word_vectors: str | None = None
    average_captions: bool = False
    finetuning: Finetuning | None = None
    of_phrases: bool = False
    of_clips: bool = False
    slow: bool = False
    goes_on_from: str | None = None
    small: Changes = Changes()
    tiny: Mapping[str, Any] = field(default_factory=dict)

    def at(self, size: Size) -> "Preset":
        """Return the system with its values at a size in place of the paper's."""
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
    """Return a preset with other settings at the size of the paper."""
    return replace(preset, settings=replace(preset.settings, **settings))


def features(name: str, encoder: str | None = None, **options: Any) -> CaptionFeatures:
    """Return caption features; without an `encoder` they are named after it."""
    return CaptionFeatures(name, encoder or name, options)


TOKEN_IDS = features("token-ids")
# Their caption files came tokenised, with spaces; Treebank words, punctuation kept, are as those.
KIROS_TOKEN_IDS = features("token-ids-kiros", tokenizer="vsepp")
MEAN_GLOVE_50 = features("mean-glove-6b-50d", "mean")
FISHER_1000 = features("fv-hglmm-pca1000", "fv-hglmm", sample=20_000, pca=1000)

# Few images make few updates, which need a higher rate; chosen on Flickr8k's dev images.
SMALL_GRU = {"dim": 256, "image_scaling": "unit", "learning_rate": 0.004}
