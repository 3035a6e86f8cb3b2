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
    """Settings; the defaults are those of Kiros et al. 2014 and of the earlier program.

    Attributes
    ----------
    context : int. Number of previous words.
    forward : int. Number of tags after a word's own; sc-nlm only.
    dim : int. Dimension of words (K) and attributes (G); for an LSTM, of its state and attention
        keys.
    factors : int. Number of tensor factors (F); multiplicative-lbl and sc-nlm only.
    word_dim : int. Dimension of an LSTM's input words.
    dropout : float. Dropout probability on each position's output vector.
    content_noise : float. Mean norm of the noise added to a sentence's embedding in training,
        before it is L2-normalised again; images are not at the same points as their sentences.
    sampled_words : int. Number of words that a target is compared with in training; 0: all, as
        tensor-lbl requires.
    batch_size : int. Sentences per batch.
    optimiser : str. "adam" or "sgd".
    learning_rate : float. Initial learning rate.
    momentum : float. Momentum of "sgd".
    weight_decay : float. Weight decay of the optimiser.
    lr_decay : float. Factor on the learning rate after an epoch without improvement.
    attention_penalty : float. Weight of the penalty sum over cells of (1 - attention summed over
        words)^2 (Xu et al. 2015, eq. 14); attention-decoder only.
    clip : float. Maximum norm of all gradients together; 0 turns clipping off.
    epochs : int. Maximum number of epochs.
    patience : int. Training stops after `patience` + 1 epochs without improvement.
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
    name : str. Name of its folder.
    model : str. A name in `MODELS`.
    settings : mapping. Non-default settings, as JSON values.
    space : str. Experiment whose trained head embeds sentences and images and ranks generated
        captions; "" for unconditional models.
    sentences : CaptionFeatures. Token ids of the captions.
    tags : CaptionFeatures. Their tags, for models with tags.
    points : str. Embeddings that a model is conditioned on in training: those of the "sentences",
        for which text is enough, or of their "images".
    images : str. Recipe of the image features that a model is conditioned on; grids for attention.
    corpus : bool. Whether it is trained on the sentences of a text file too.
    source : str. Where the values are published.
    leaves_open : str. Our choices where the source is silent, and our deviations.
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
