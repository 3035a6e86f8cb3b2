"""The registry of trained language models, their settings, and experiments."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.heads.base import choice, setting
from pipeline.heads.head_types import CaptionFeatures
from pipeline.language import LanguageError
from pipeline.store.wording import did_you_mean

Condition = Literal["nothing", "sentence", "image"]

SENTENCES = CaptionFeatures("token-ids", "token-ids")
TAGS = CaptionFeatures("tags", "tags")
SPACY_TAGS = CaptionFeatures("tags-spacy", "tags-spacy")
UNIVERSAL_TAGS = CaptionFeatures("tags-universal", "tags-universal")

MODELS: dict[str, Condition] = {
    "lbl": "nothing",
    "additive-lbl": "sentence",
    "multiplicative-lbl": "sentence",
    "tensor-lbl": "sentence",
    "sc-nlm": "sentence",
    "lstm-decoder": "image",
    "attention-decoder": "image",
}
"""Trained models by name, with their condition in training: "nothing", the embedding of the
"sentence" itself in a retrieval head's space, or the features of its "image"."""


@dataclass(frozen=True)
class LanguageSettings:
    """Settings; the defaults are those of Kiros et al. 2014 and of the earlier program."""

    context: int = setting(5, at_least=1)  # number of previous words
    forward: int = setting(3)  # number of tags after a word's own; sc-nlm only
    # Of words (K) and attributes (G); for an LSTM, of its state and attention keys.
    dim: int = setting(300, at_least=1)
    # Number of tensor factors (F); multiplicative-lbl and sc-nlm only.
    factors: int = setting(100, at_least=1)
    word_dim: int = setting(300, at_least=1)  # of an LSTM's input words
    dropout: float = setting(0.0, below=1)  # probability, on each position's output vector
    # Mean norm of the noise added to a sentence's embedding in training, before it is
    # L2-normalised again; images are not at the same points as their sentences.
    content_noise: float = setting(0.0)
    # Words that a target is compared with in training; 0: all, as tensor-lbl requires.
    sampled_words: int = setting(0)
    batch_size: int = setting(100, at_least=2)  # in sentences
    optimiser: str = choice("adam", "sgd")
    learning_rate: float = setting(0.001)  # the initial one
    momentum: float = setting(0.0, below=1)  # of "sgd"
    weight_decay: float = setting(0.0)
    lr_decay: float = setting(0.5)  # factor after an epoch without improvement
    # Weight of the penalty sum over cells of (1 - attention summed over words)^2 (Xu et al. 2015,
    # eq. 14); attention-decoder only.
    attention_penalty: float = setting(0.0)
    clip: float = setting(0.0)  # maximum norm of all gradients together; 0 turns clipping off
    epochs: int = setting(30, at_least=1)  # at most
    patience: int = setting(3)  # stop after `patience` + 1 epochs without improvement


@dataclass(frozen=True)
class LanguageExperiment:
    """A language model with its training data."""

    name: str  # of its folder
    model: str  # a name in `MODELS`
    settings: Mapping[str, Any] = field(default_factory=dict)  # non-default, as JSON values
    # Experiment whose trained head embeds sentences and images and ranks generated captions; "" for
    # unconditional models.
    space: str = ""
    # Embeddings that a model is conditioned on in training: those of the "sentences", for which
    # text is enough, or of their "images".
    points: Literal["sentences", "images"] = "sentences"
    sentences: CaptionFeatures = SENTENCES  # token ids of the captions
    tags: CaptionFeatures = TAGS  # for models with tags
    images: str = ""  # recipe of features that a model is conditioned on; grids for attention
    corpus: bool = False  # whether it is trained on the sentences of a text file too
    source: str = ""  # where the values are published
    leaves_open: str = ""  # our choices where the source is silent, and our deviations

    def at_most(self, epochs: int | None) -> "LanguageExperiment":
        """Return the experiment with at most `epochs` epochs; None changes nothing."""
        if epochs is None or self.settings.get("epochs", LanguageSettings.epochs) <= epochs:
            return self
        return replace(self, settings={**self.settings, "epochs": epochs})

    @property
    def condition(self) -> Condition:
        """Condition of the model in training; see `MODELS`."""
        return condition_of(self.model)

    @property
    def takes_tags(self) -> bool:
        """Whether the model uses tags."""
        return self.model == "sc-nlm"

    @property
    def attends(self) -> bool:
        """Whether the model attends to the cells of a grid."""
        return self.model == "attention-decoder"


def condition_of(model: str) -> Condition:
    """Return the condition of a model in training; raise if it is unknown."""
    if model not in MODELS:
        hint = did_you_mean(model, MODELS)
        raise LanguageError(f"no language model is called {model!r}; {hint}")
    return MODELS[model]
