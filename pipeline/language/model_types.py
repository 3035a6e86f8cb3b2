"""The registry of trained language models, their settings, and experiments."""

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
    "tensor-lbl": "sentence",
    "sc-nlm": "sentence",
    "lstm-decoder": "image",
    "attention-decoder": "image",
}
"""Trained models by name, with their condition in training: "nothing", the embedding of the
"sentence" itself in a retrieval head's space, or the features of its "image"."""


@dataclass(frozen=True)
class LanguageSettings:
    """Settings; the defaults are those of Kiros et al. 2014 and of the earlier program.

    context : number of previous words.
    forward : number of tags after a word's own; for sc-nlm.
    dim : dimension of words (K) and attributes (G); of an LSTM its state and attention keys.
    factors : number of tensor factors (F); for multiplicative-lbl and sc-nlm.
    word_dim : dimension of an LSTM's input words.
    dropout : dropout probability on each position's output vector.
    content_noise : mean norm of the noise added to a sentence's embedding in training, before it
        is L2-normalised again; images are not at the same points as their sentences.
    sampled_words : number of words that a target is compared with in training; 0: all, as
        tensor-lbl requires.
    batch_size : sentences per batch.
    weight_decay : weight decay of the optimiser.
    lr_decay : factor on the learning rate after an epoch without improvement.
    attention_penalty : weight of the squared difference between 1 and a cell's attention summed
        over words, summed over cells; for attention-decoder.
    clip : maximum norm of all gradients together; 0 turns clipping off.
    patience : early stopping after more epochs than this without improvement.
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
    """A language model with its training data.

    Attributes
    ----------
    name : name of its folder.
    model : a name in `MODELS`.
    settings : non-default settings, as JSON values.
    space : experiment whose trained head embeds sentences and images and ranks generated captions;
        "" for unconditional models.
    sentences : token ids of the captions.
    tags : their tags, for models with tags.
    points : embeddings that a model is conditioned on in training: those of the "sentences", for
        which text is enough, or of their "images".
    images : recipe of the image features that a model is conditioned on; grids for attention.
    corpus : whether it is trained on the sentences of a text file in addition to the captions.
    source : where the values are published.
    leaves_open : our choices where the source is silent, and our deviations.
    """

    name: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    space: str = ""
    points: Literal["sentences", "images"] = "sentences"
    sentences: CaptionFeatures = SENTENCES
    tags: CaptionFeatures = TAGS
    images: str = ""
    corpus: bool = False
    source: str = ""
    leaves_open: str = ""

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
    """Return the condition of a model in training.

    Raises
    ------
    LanguageError
        The model is unknown; the nearest names are listed.
    """
    if model not in MODELS:
        hint = did_you_mean(model, MODELS)
        raise LanguageError(f"no language model is called {model!r}; {hint}")
    return MODELS[model]
