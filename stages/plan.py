"""What `train`, `embed` and `run` make of params.yaml: experiments of presets and differences."""

from typing import Any

from pipeline.heads.catalogue import CaptionFeatures, Experiment
from pipeline.heads.experiments import TRAINED_VECTORS, resolve_experiment
from pipeline.heads.presets import PRESETS
from pipeline.retrieval.ensemble import ENSEMBLES
from stages.params import Params


def experiment_of(params: Params, name: str) -> Experiment:
    """Return an experiment: its preset, at the file's size, and what the file changes.

    Parameters
    ----------
    params : the file.
    name : of one of its experiments, or of a published system that it does not have.

    Raises
    ------
    ParamsError
        There is none of this name; the known ones are listed.
    HeadError
        Its preset, its head or a setting is unknown, or a setting is out of range.
    """
    if name not in params.experiments and name in PRESETS:
        return resolve_experiment(name, size=params.size)
    entry = params.entry(name)
    features = params.caption_features.get(entry.captions)
    return resolve_experiment(
        name,
        preset=entry.preset,
        head=entry.head,
        size=params.size,
        images=entry.images,
        captions=CaptionFeatures(
            entry.captions,
            features.encoder if features else entry.captions,
            (features.model_extra or {}) if features else {},
        ),
        settings=entry.settings,
        word_vectors=entry.word_vectors,
        average_captions=entry.average_captions,
    )


def every_name(params: Params) -> list[str]:
    """Return the experiments of params.yaml, then all published systems, then the ensembles."""
    return list(dict.fromkeys([*params.experiments, *PRESETS, *params.ensembles, *ENSEMBLES]))


def run_options(params: Params) -> dict[str, Any]:
    """Return the options of `pipeline.experiments.run.run` that params.yaml sets."""
    return {
        "experiments": {name: experiment_of(params, name) for name in params.experiments},
        "ensembles": {
            name: params.ensemble(name) or ENSEMBLES.get(name, {}) for name in params.ensembles
        },
        "splits": params.splits.model_dump(),
        "extract": params.extract.model_dump(exclude_none=True),
        "word_vectors": {**TRAINED_VECTORS, **params.word_vectors},
        "evaluate": params.evaluate,
    }
