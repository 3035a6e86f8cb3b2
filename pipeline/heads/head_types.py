"""The registry of heads, and experiments, which refer to heads by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.heads import HeadError
from pipeline.heads.base import Head, HeadKind, choice, setting, settings_from, text
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.errors import UnknownName
from pipeline.store.registry import Registry
from pipeline.store.wording import did_you_mean

_ARCHITECTURES = (
    "cca", "ridge", "vse", "relational", "scan", "two-branch", "word2visualvec", "zero-shot"
)  # fmt: skip
HEADS: Registry[HeadKind] = Registry(
    "heads",
    "pipeline.heads.head_types:HEADS",
    {
        name: f"pipeline.heads.architectures.{name.replace('-', '_')}:HEAD"
        for name in _ARCHITECTURES
    },
    "a pipeline.heads.base.HeadKind",
    lambda thing: isinstance(thing, HeadKind),
)
"""Heads by name, and guests."""

PRECISIONS = ("float32", "bf16")
"""Arithmetic of a training: of the products of the layers; see `pipeline.heads.layers.products`."""


@dataclass(frozen=True)
class CaptionFeatures:
    """Caption features, computed by `pipeline.text.encode.encode`."""

    name: str  # name of the feature folder
    encoder: str  # sentence encoder, or several joined by "+"
    # Further options of the job. `vectors` may name word vectors of a package, or those of the
    # dataset with that name.
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finetuning:
    """Options for training a head together with the network of its image features."""

    start: str = text("")  # experiment whose head, fitted on stored features, training starts from
    # Of the network; the head's is in its settings, and the schedule applies to both. 0 trains
    # the head alone, on the same crops: the control.
    learning_rate: float = setting(0.00002)
    first_layer: str = text("")  # first trainable layer; earlier ones are frozen; empty: all train
    # Minimum share of the area of a random crop.
    smallest_crop: float = setting(0.08, at_least=0.01, below=1.0001)
    # Of the network's matrix products in training; that of the head's is in the experiment.
    precision: str = choice("float32", "bf16")


@dataclass(frozen=True)
class Experiment:
    """A head and the features that it is fitted on; see `pipeline.resolve_experiment`."""

    name: str  # of the folders of its head, embeddings and tables
    head: str  # a name in `HEADS`, or "package.module:ATTRIBUTE"
    settings: Mapping[str, Any] = field(default_factory=dict)  # non-default, as JSON values
    images: str = ""  # recipe; empty if feature folders are passed instead
    # Empty if feature folders are passed instead.
    captions: CaptionFeatures = CaptionFeatures("", "")
    word_vectors: str | None = None  # name or path; None: words start random, or are not read
    average_captions: bool = False  # one caption per image: the mean of their features
    preset: str | None = None  # published system, a name in `presets.PRESETS`
    finetuning: Finetuning | None = None  # None: the head alone, on stored features
    of_phrases: bool = False  # on regions and phrases; see `pipeline.regions.localization`
    goes_on_from: str | None = None  # experiment whose head continues training with mined boxes
    precision: str = "float32"  # a name in `PRECISIONS`; see `with_precision`
    csls: bool = False  # whether its cosines are corrected; see `pipeline.Stored`

    @property
    def embedded_images(self) -> str:
        """Name of the image features to embed: those of the tuned network, if there is one."""
        return self.images if self.finetuning is None else f"{self.images}-{self.name}"


def head_kind(name: str, recorded: str = "") -> HeadKind:
    """Return the registry entry of a head, by its name or as "package.module:ATTRIBUTE".

    `recorded` is the plugin that a trained head records. Raise HeadError for an unknown name.
    """
    try:
        return HEADS.at(name) if ":" in name else HEADS.get(name, recorded)
    except UnknownName as error:
        raise HeadError(str(error)) from error


def make_head(
    name: str, settings: Mapping[str, Any], inputs: HeadInputs, recorded: str = ""
) -> Head:
    """Return an unfitted head; `settings` are the differences from its defaults."""
    kind = head_kind(name, recorded)
    return kind.make(settings_from(kind.settings, settings, name), inputs)


def with_epochs_at_most(
    name: str, settings: Mapping[str, Any], most: int | None
) -> Mapping[str, Any]:
    """Return the settings with `epochs`, if the head has any, limited to `most`."""
    epochs = settings.get("epochs", getattr(head_kind(name).settings, "epochs", None))
    if most is None or not isinstance(epochs, int) or epochs <= most:
        return settings
    return {**settings, "epochs": most}


def with_precision(experiment: Experiment, requested: str | None) -> Experiment:
    """Return an experiment with the requested precision, also of its image network, or its own."""
    precision = requested or experiment.precision
    if precision not in PRECISIONS:
        raise HeadError(
            f"no training has the precision {precision!r}; {did_you_mean(precision, PRECISIONS)}"
        )
    # A closed form is always solved in float32.
    if not hasattr(head_kind(experiment.head).settings, "epochs"):
        return replace(experiment, precision="float32")
    tuned = experiment.finetuning
    if tuned is not None and (requested or precision != "float32"):
        tuned = replace(tuned, precision=precision)
    return replace(experiment, precision=precision, finetuning=tuned)


def trained_with(
    experiment: Experiment, training: TrainingOptions, train_split: str, validation_split: str
) -> dict[str, Any]:
    """Return the fields of a `TrainedHead` that follow from options, as JSON values."""
    return {
        "kind": experiment.head,
        "plugin": "" if ":" in experiment.head else HEADS.plugin(experiment.head),
        "settings": with_epochs_at_most(experiment.head, experiment.settings, training.max_epochs),
        "seed": training.seed,
        "train_split": train_split,
        "validation_split": validation_split,
        "average_captions": experiment.average_captions,
        "precision": with_precision(experiment, training.precision).precision,
    }
