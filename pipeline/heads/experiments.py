"""Experiments: a preset at a size, with overrides, or on other features."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from pipeline.heads import HeadError
from pipeline.heads.base import settings_from
from pipeline.heads.head_types import CaptionFeatures, Experiment, Finetuning, head_kind
from pipeline.heads.presets import find_preset
from pipeline.heads.presets.preset import OWN_VECTORS, Preset
from pipeline.heads.presets.preset import Size as Size

TRAINED_VECTORS: dict[str, Mapping[str, Any]] = {
    OWN_VECTORS: {"train": "word2vec", "dim": 100, "epochs": 20}
}
"""Options of `pipeline vectors` for word vectors trained on the dataset's own captions."""


def resolve_experiment(
    name: str,
    *,
    preset: str | None = None,
    head: str | None = None,
    size: Size = "small",
    images: str | None = None,
    captions: CaptionFeatures | None = None,
    settings: Mapping[str, Any] | None = None,
    word_vectors: str | None = None,
    average_captions: bool | None = None,
    finetuning: Mapping[str, Any] | None = None,
    precision: str = "float32",
    csls: bool = False,
) -> Experiment:
    """Return an experiment: a preset at a size, with overrides.

    Parameters
    ----------
    name : str. Name of the experiment.
    preset : str or None. Published system to start from; None: the preset called `name`.
    head : str or None. A head with its own defaults instead of a preset; requires `images` and
        `captions`.
    size : str. Size of the preset: "paper", "small" or "tiny"; see `pipeline.heads.presets`.
    images, captions, word_vectors, average_captions : str, CaptionFeatures, bool or None. Override
        those of the preset.
    settings : mapping of str to object, or None. Override settings of the head.
    finetuning : mapping of str to object, or None. Override fields of
        `pipeline.heads.head_types.Finetuning`.
    precision : str. Arithmetic of the training, "float32" or "bf16".
    csls : bool. Whether cosines of its embeddings are corrected, see `pipeline.Stored`.

    Raises
    ------
    HeadError
        A preset, head or setting is unknown; preset and head are both set; or a head has no
        features.

    Examples
    --------
    >>> experiment = pipeline.resolve_experiment("vsepp", size="small", settings={"margin": 0.3})
    >>> experiment.head, experiment.settings["margin"]
    ('vse', 0.3)
    """
    settings, finetuning = settings or {}, finetuning or {}
    published: Preset | None = None
    if head is None:
        preset = preset or name
        published = find_preset(preset).at(size)
        head, images = published.head, images or published.images
        captions = captions or published.captions
        settings = {**non_default(published.settings), **settings}
        word_vectors = word_vectors or published.word_vectors
        if published.finetuning is not None:
            finetuning = {**non_default(published.finetuning), **finetuning}
        average_captions = (
            published.average_captions if average_captions is None else average_captions
        )
    elif preset is not None:
        raise HeadError(
            f"experiment {name!r} sets both preset {preset!r} and head {head!r}; remove one"
        )
    elif not (images and captions):
        raise HeadError(
            f"experiment {name!r} sets a head without a preset, so it needs `images` and "
            "`captions` too"
        )
    checked = settings_from(head_kind(head).settings, settings, head)
    return Experiment(
        name=name,
        head=head,
        settings=non_default(checked),
        images=images,
        captions=captions,
        word_vectors=word_vectors,
        average_captions=bool(average_captions),
        preset=preset,
        finetuning=settings_from(Finetuning, finetuning, "of fine-tuning") if finetuning else None,
        of_phrases=published is not None and published.of_phrases,
        goes_on_from=None if published is None else published.goes_on_from,
        precision=precision,
        csls=csls,
    )


def on_features(experiment: Experiment, features: str) -> Experiment:
    """Return an experiment on other features, called `NAME@FEATURES`.

    FEATURES are `RECIPE` of images ("A+B"), `@ENCODER` of captions or `RECIPE@@ENCODER`, and in
    place of either the name of a set that was made elsewhere.
    """
    name = f"{experiment.name}@{features}"
    images, at, captions = f"@{features}".partition("@@")
    images = images[1:]
    if not (images or captions) or (at and not captions):
        raise HeadError(
            f"{name!r} lacks the name of features; expected EXPERIMENT@IMAGES, "
            "EXPERIMENT@@CAPTIONS or EXPERIMENT@IMAGES@@CAPTIONS"
        )
    if experiment.finetuning is not None:
        raise HeadError(
            f"{name!r}: {experiment.name} fine-tunes the network of {experiment.images}, layer by "
            "layer; for another network add an experiment with `images` and `finetuning` to "
            "params.yaml"
        )
    return replace(
        experiment, name=name, images=images or experiment.images,
        captions=CaptionFeatures(captions, captions) if captions else experiment.captions,
    )  # fmt: skip


def experiment_finder(
    experiments: Mapping[str, Experiment] | None = None, size: Size = "small"
) -> Callable[[str], Experiment]:
    """Return a function from NAME or NAME@FEATURES to an experiment; see `on_features`."""

    def find(name: str) -> Experiment:
        if (experiment := (experiments or {}).get(name)) is not None:
            return experiment
        base, at, features = name.partition("@")
        return on_features(find(base), features) if at else resolve_experiment(name, size=size)

    return find


def non_default(settings: Any) -> dict[str, Any]:
    """Return the non-default settings as JSON values."""
    values = {f.name: (getattr(settings, f.name), f.default) for f in fields(settings)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, (value, default) in values.items()
        if value != default
    }
