"""The trained language models by name, their settings, and the experiments that name them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.heads.base import choice, setting
from pipeline.heads.head_types import CaptionFeatures
from pipeline.language import LanguageError
from pipeline.wording import did_you_mean

Condition = Literal["nothing", "sentence", "image"]

SENTENCES = CaptionFeatures("token-ids", "token-ids")
TAGS = CaptionFeatures("tags", "tags")
UNIVERSAL_TAGS = CaptionFeatures("tags-universal", "tags-universal")

MODELS: dict[str, Condition] = {
    "lbl": "nothing",
    "additive-lbl": "sentence",
    "multiplicative-lbl": "sentence",
    "sc-nlm": "sentence",
    "lstm-decoder": "image",
    "attention-decoder": "image",
}
"""Every trained model by name, with what it is conditioned on while it is trained: "nothing", the
"sentence" itself as a point of a retrieval head's space, or the features of its "image"."""


@dataclass(frozen=True)
class LanguageSettings:
    """Settings; the defaults are those of Kiros et al. 2014 and of the program before it.

    context : words before a position that are seen.
    forward : tags behind a word's own that are seen; of sc-nlm.
    dim : of words (K) and of attributes (G); of an LSTM its state, and the keys of its attention.
    factors : of the tensor (F); of lbl, additive-lbl and an LSTM none.
    word_dim : of the words that an LSTM reads.
    dropout : share of each position's vector that is left out while training.
    content_noise : length of the random vector that is added to a sentence's point while training,
        on average, before it has unit length again; images are not where their sentences are.
    sampled_words : words that a target is compared with while training; 0: all.
    batch_size : sentences of a step.
    weight_decay : of the optimiser.
    lr_decay : the learning rate is multiplied by it after an epoch that is not the best so far.
    attention_penalty : weight of the squared difference between 1 and the attention that a cell
        gets from all words, summed over cells; of attention-decoder.
    clip : norm of all gradients together at most; 0 clips nothing.
    patience : training stops after more epochs than this without a better one.
    """

    context: int = setting(5, at_least=1)
    forward: int = setting(3)
    dim: int = setting(300, at_least=1)
    factors: int = setting(100, at_least=1)
    word_dim: int = setting(300, at_least=1)
    dropout: float = setting(0.0, below=1)
    content_noise: float = setting(0.0)
    sampled_words: int = setting(0)
    batch_size: int = setting(100, at_least=2)
    optimiser: str = choice("adam", "sgd")
    learning_rate: float = setting(0.001)
    momentum: float = setting(0.0, below=1)
    weight_decay: float = setting(0.0)
    lr_decay: float = setting(0.5)
    attention_penalty: float = setting(0.0)
    clip: float = setting(0.0)
    epochs: int = setting(30, at_least=1)
    patience: int = setting(3)


@dataclass(frozen=True)
class LanguageExperiment:
    """A language model, and what it is trained on.

    Attributes
    ----------
    name : of its folder.
    model : a name in `MODELS`.
    settings : what differs from the defaults of `LanguageSettings`, as JSON values.
    space : the experiment whose trained head makes points of sentences and of images, and ranks
        what is written; "" of a model that takes no condition.
    sentences : token ids of the captions.
    tags : their tags, of a model that takes any.
    points : whose points of the space a model is conditioned on while it is trained: the
        "sentences" themselves, for which text is enough, or their "images".
    images : recipe of the image features that a model is conditioned on; grids, if it attends.
    source : where the values stand.
    leaves_open : what the source does not say, and what stands here.
    """

    name: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    space: str = ""
    points: Literal["sentences", "images"] = "sentences"
    sentences: CaptionFeatures = SENTENCES
    tags: CaptionFeatures = TAGS
    images: str = ""
    source: str = ""
    leaves_open: str = ""

    def at_most(self, epochs: int | None) -> "LanguageExperiment":
        """Return the experiment with a number of epochs at most; None changes nothing."""
        if epochs is None or self.settings.get("epochs", LanguageSettings.epochs) <= epochs:
            return self
        return replace(self, settings={**self.settings, "epochs": epochs})

    @property
    def condition(self) -> Condition:
        """What the model is conditioned on while it is trained; see `MODELS`."""
        return condition_of(self.model)

    @property
    def takes_tags(self) -> bool:
        """Whether the model reads tags."""
        return self.model == "sc-nlm"

    @property
    def attends(self) -> bool:
        """Whether the model reads the cells of a grid, and not one vector of an image."""
        return self.model == "attention-decoder"


def condition_of(model: str) -> Condition:
    """Return what a model is conditioned on.

    Raises
    ------
    LanguageError
        No such model; the nearest names are listed.
    """
    if model not in MODELS:
        hint = did_you_mean(model, MODELS)
        raise LanguageError(f"no language model is called {model!r}; {hint}")
    return MODELS[model]
