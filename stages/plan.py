"""What `train`, `embed` and `run` make of params.yaml: experiments of presets and differences."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pipeline.heads.experiments import TRAINED_VECTORS, Size, resolve_experiment
from pipeline.heads.head_types import CaptionFeatures, Experiment
from pipeline.heads.presets import PRESETS
from pipeline.retrieval.ensemble import ENSEMBLES
from pipeline.wording import did_you_mean
from stages.params import PARAMS_FILE, Params, UnknownExperiment


def experiment_of(params: Params, name: str, size: Size | None = None) -> Experiment:
    """Return an experiment: its preset, at a size, and what the file changes.

    Caption features that the file makes are those of every experiment that names their folder.

    Parameters
    ----------
    params : the file.
    name : of one of its experiments, or of a published system that it does not have.
    size : of the preset; None: the file's.

    Raises
    ------
    UnknownExperiment
        There is none of this name; the nearest are listed.
    HeadError
        Its preset, its head or a setting is unknown, or a setting is out of range.
    """
    size = size or params.size
    if name not in params.experiments and name in PRESETS:
        preset = resolve_experiment(name, size=size)
        return replace(
            preset, captions=_captions_of(params, preset.captions.name) or preset.captions
        )
    require_experiments(params, [name])
    entry = params.experiments[name]
    return resolve_experiment(
        name,
        preset=entry.preset,
        head=entry.head,
        size=size,
        images=entry.images,
        captions=_captions_of(params, entry.captions)
        or CaptionFeatures(entry.captions, entry.captions),
        settings=entry.settings,
        word_vectors=entry.word_vectors,
        average_captions=entry.average_captions,
        finetuning=entry.finetuning,
        precision=entry.precision,
    )


def require_experiments(params: Params, names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise unless each name is an experiment of params.yaml, a published system, or another.

    Raises
    ------
    UnknownExperiment
        The nearest names are listed.
    """
    known = [*params.experiments, *PRESETS, *others]
    for name in names:
        if name not in known:
            where = f"{PARAMS_FILE} has no" if params.experiments else "there is no"
            raise UnknownExperiment(
                f"{where} experiment {name!r}, and no published system is called so; "
                f"{did_you_mean(name, known, 'pipeline list experiments')}"
            )


def _captions_of(params: Params, folder: str) -> CaptionFeatures | None:
    """Return the caption features that the file makes in a folder, None if it does not."""
    if folder not in params.caption_features:
        return None
    made = params.caption_features[folder]
    return CaptionFeatures(folder, made.encoder, made.options)


def every_name(params: Params) -> list[str]:
    """Return the experiments of params.yaml, then all published systems, then the ensembles.

    Presets on a library's model, "open-clip:<model>", are left out: its package or its weights may
    not be here. So are those that take hours without a GPU, on several networks side by side, with
    an image network that is tuned, or `slow` for another reason, those of clips, and those of
    regions and phrases, which `pipeline localize` trains.
    """
    published = [
        name
        for name, p in PRESETS.items()
        if not {*":+"} & {*p.images}
        and p.finetuning is None
        and not (p.slow or p.of_phrases or p.of_clips)
    ]
    names = [*params.experiments, *published, *params.ensembles]
    ensembles = [name for name, members in ENSEMBLES.items() if members.keys() <= {*names}]
    return list(dict.fromkeys([*names, *ensembles]))


def run_options(params: Params, size: Size) -> dict[str, Any]:
    """Return the options of `pipeline.experiments.run.run` that params.yaml sets, at a size."""
    names = [*params.experiments, *PRESETS]
    evaluate = dict(params.evaluate)
    if evaluate.get("captions_per_image") == 0:  # all, as the command has it
        evaluate["captions_per_image"] = None
    return {
        "experiments": {name: experiment_of(params, name, size) for name in names},
        "size": size,
        "ensembles": {
            name: params.ensemble(name) or ENSEMBLES.get(name, {}) for name in params.ensembles
        },
        "test_split": params.splits.test,
        "extract": params.extract.options,
        "word_vectors": {**TRAINED_VECTORS, **params.word_vectors},
        "evaluate": evaluate,
    }
