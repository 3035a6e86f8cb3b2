"""The registry of heads, and experiments, which refer to heads by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from pipeline.heads import HeadError
from pipeline.heads.base import Head, HeadKind, choice, setting, settings_from, text
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.store.wording import did_you_mean

HEADS = ("cca", "ridge", "vse", "relational", "scan", "two-branch", "word2visualvec", "zero-shot")
"""Heads by name. `two-branch` is `HEAD` of `pipeline.heads.architectures.two_branch`, and so on;
modules are imported on first use."""

PRECISIONS = ("float32", "bf16")
"""Arithmetic of a training: of the products of the layers; see `pipeline.heads.layers.products`."""


@dataclass(frozen=True)
class CaptionFeatures:
    """Caption features, computed by `pipeline.text.encode.encode`.

    Attributes
    ----------
    name : str. Name of the feature folder.
    encoder : str. Sentence encoder, or several joined by "+".
    options : mapping. Further options of the job. `vectors` may name word vectors of a package, or
        those of the dataset with that name.
    """

    name: str
    encoder: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finetuning:
    """Options for training a head together with the network of its image features.

    Attributes
    ----------
    start : str. Experiment whose trained head training starts from, fitted on stored features of
        the same recipe and captions.
    learning_rate : float. Learning rate of the network; the head's is in its settings, and the
        schedule applies to both. 0 trains the head alone, on the same crops: the control.
    first_layer : str. Name of the first trainable layer; earlier ones are frozen. Empty: all train.
    smallest_crop : float. Minimum share of the area of a random crop; images are also mirrored at
        random; see `pipeline.heads.finetuning.augmentation`.
    precision : str. Precision of the network's matrix products in training; validation is in
        float32. That of the head's products is in the experiment.
    """

    start: str = text("")
    learning_rate: float = setting(0.00002)
    first_layer: str = text("")
    smallest_crop: float = setting(0.08, at_least=0.01, below=1.0001)
    precision: str = choice("float32", "bf16")


@dataclass(frozen=True)
class Experiment:
    """A head and the features that it is fitted on.

    Attributes
    ----------
    name : str. Name of the folders of its head, embeddings and tables.
    head : str. A name in `HEADS`.
    settings : mapping. Non-default settings of the head, as JSON values.
    images : str. Recipe of the image features; empty if feature folders are passed instead.
    captions : CaptionFeatures. Caption features; the name is empty if feature folders are passed
        instead.
    word_vectors : str or None. Name or path of the vectors that initialise the words of a head that
        reads token ids; None: random initialisation.
    average_captions : bool. Whether the captions of an image are replaced by the mean of their
        features, in training and embedding.
    preset : str or None. Published system, a name in `pipeline.heads.presets.PRESETS`.
    finetuning : Finetuning or None. Options for training head and image network together; None: the
        head alone, on stored features.
    of_phrases : bool. Whether the head is fitted on regions and phrases; see
        `pipeline.regions.localization`.
    goes_on_from : str or None. Experiment whose trained head continues training with mined boxes,
        or None.
    precision : str. A name in `PRECISIONS`; see `with_precision`.
    """

    name: str
    head: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    images: str = ""
    captions: CaptionFeatures = CaptionFeatures("", "")
    word_vectors: str | None = None
    average_captions: bool = False
    preset: str | None = None
    finetuning: Finetuning | None = None
    of_phrases: bool = False
    goes_on_from: str | None = None
    precision: str = "float32"

    @property
    def embedded_images(self) -> str:
        """Name of the image features to embed: those of the tuned network, if there is one."""
        return self.images if self.finetuning is None else f"{self.images}-{self.name}"


def head_kind(name: str) -> HeadKind:
    """Return the settings class and the factory of a head.

    Raises
    ------
    HeadError
        The name is unknown; the nearest names are listed.
    """
    if name == "recurrent":
        raise HeadError("head 'recurrent' is now called vse")
    if name not in HEADS:
        raise HeadError(f"no head is called {name!r}; {did_you_mean(name, HEADS)}")
    kind: HeadKind = import_module(f"pipeline.heads.architectures.{name.replace('-', '_')}").HEAD
    return kind


def make_head(name: str, settings: Mapping[str, Any], inputs: HeadInputs) -> Head:
    """Return an unfitted head.

    Parameters
    ----------
    name : str. A name in `HEADS`.
    settings : mapping. Differences from the head's defaults.
    inputs : HeadInputs. Shapes and recipes of the features of both sides.

    Raises
    ------
    HeadError
        The name is unknown (the nearest are listed), settings are invalid, or the head does not
        support the features.
    """
    kind = head_kind(name)
    return kind.make(settings_from(kind.settings, settings, name), inputs)


def with_epochs_at_most(
    name: str, settings: Mapping[str, Any], most: int | None
) -> Mapping[str, Any]:
    """Return the settings with `epochs` limited to `most`; None changes nothing.

    Settings of heads that are not trained in epochs are unchanged.

    Raises
    ------
    HeadError
        The head is unknown.
    """
    epochs = settings.get("epochs", getattr(head_kind(name).settings, "epochs", None))
    if most is None or not isinstance(epochs, int) or epochs <= most:
        return settings
    return {**settings, "epochs": most}


def with_precision(experiment: Experiment, asked: str | None) -> Experiment:
    """Return an experiment with its training precision.

    A requested precision, or the experiment's own if it is not float32, applies to the head and to
    a fine-tuned image network. A closed-form head is always fitted in float32.

    Parameters
    ----------
    experiment : Experiment. The experiment.
    asked : str or None. A name in `PRECISIONS`, which overrides the experiment's own; None: its
        own.

    Raises
    ------
    HeadError
        The head or the precision is unknown.
    """
    precision = asked or experiment.precision
    if precision not in PRECISIONS:
        raise HeadError(
            f"no training has the precision {precision!r}; {did_you_mean(precision, PRECISIONS)}"
        )
    if not hasattr(head_kind(experiment.head).settings, "epochs"):
        return replace(experiment, precision="float32")
    tuned = experiment.finetuning
    if tuned is not None and (asked or precision != "float32"):
        tuned = replace(tuned, precision=precision)
    return replace(experiment, precision=precision, finetuning=tuned)
