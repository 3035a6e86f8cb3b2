"""The heads by name, and the experiments that name them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from pipeline.heads import HeadError
from pipeline.heads.base import Head, HeadKind, choice, setting, settings_from, text
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.wording import did_you_mean

HEADS = ("cca", "ridge", "vse", "relational", "scan", "two-branch", "word2visualvec", "zero-shot")
"""Every head by name. `two-branch` is `HEAD` of `pipeline.heads.architectures.two_branch`, and so
on; a module is imported when its head is asked for."""

PRECISIONS = ("float32", "bf16")
"""Arithmetic of a training: of the products of the layers; see `pipeline.heads.layers.products`."""


@dataclass(frozen=True)
class CaptionFeatures:
    """Features of captions, as the job `pipeline.text.encode.encode` makes them.

    Attributes
    ----------
    name : of their folder.
    encoder : sentence encoder, or several joined by "+".
    options : further options of the job. `vectors` may name word vectors: those of a package, or
        those of the dataset of that name.
    """

    name: str
    encoder: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finetuning:
    """How a trained head learns on together with the network of its image features.

    start : the experiment whose head it begins with, fitted on stored features of the same recipe
        and captions.
    learning_rate : of the network; the head's is in its settings, and what lowers it lowers both.
    first_layer : the network's first layer that learns, by its name; those before it stay as they
        are. Empty: all learn.
    smallest_crop : a picture is cropped at random, to this share of its area or more, and mirrored
        or not; see `pipeline.finetuning.augmentation`.
    precision : of the products in the network while it learns; validation is in float32. The head
        has that of the experiment.
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
    name : of the folders of its head, embeddings and tables.
    head : a name in `HEADS`.
    settings : what differs from the head's defaults, as JSON values.
    images : recipe of the image features; empty where folders of features are given beside it.
    captions : caption features; of an empty name where folders are given.
    word_vectors : name or path of the vectors that the words of a head that reads token ids start
        from; None starts them at random.
    average_captions : whether the head is fitted on, and embeds, one caption an image, the mean of
        the features of its captions.
    preset : the published system that it follows, a name in `pipeline.heads.presets.PRESETS`.
    finetuning : how head and image network learn together; None: the head alone learns, on stored
        features.
    of_phrases : whether the head is fitted on regions and phrases; see `pipeline.localization`.
    goes_on_from : experiment whose trained head it goes on from with mined boxes; None: none.
    precision : a name in `PRECISIONS`; see `with_precision`.
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
        """Name of the image features that the trained head embeds: of a network of its own."""
        return self.images if self.finetuning is None else f"{self.images}-{self.name}"


def head_kind(name: str) -> HeadKind:
    """Return the settings class and the maker of a head.

    Raises
    ------
    HeadError
        No such head; the nearest names are listed.
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
    name : one of `HEADS`.
    settings : what differs from the head's defaults.
    inputs : shapes and recipes of the features of both sides.

    Raises
    ------
    HeadError
        No such head (the nearest names are listed), unknown settings, or features that the head
        cannot take.
    """
    kind = head_kind(name)
    return kind.make(settings_from(kind.settings, settings, name), inputs)


def with_epochs_at_most(
    name: str, settings: Mapping[str, Any], most: int | None
) -> Mapping[str, Any]:
    """Return settings of a head that train for `most` epochs or fewer; None changes nothing.

    A head that trains in no epochs keeps its settings.

    Raises
    ------
    HeadError
        No such head.
    """
    epochs = settings.get("epochs", getattr(head_kind(name).settings, "epochs", None))
    if most is None or not isinstance(epochs, int) or epochs <= most:
        return settings
    return {**settings, "epochs": most}


def with_precision(experiment: Experiment, asked: str | None) -> Experiment:
    """Return an experiment with the precision that it is trained in.

    One that is asked for, or an experiment's own other than float32, is that of the head and of an
    image network that is fine-tuned. A head in closed form is always fitted in float32.

    Parameters
    ----------
    experiment : Experiment.
    asked : str or None. In place of the experiment's own, a name in `PRECISIONS`; None: its own.

    Raises
    ------
    HeadError
        No such head or precision.
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
