"""Experiments of params.yaml for `train`, `embed` and `run`: presets with overrides."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pipeline.heads.experiments import TRAINED_VECTORS, Size, on_features, resolve_experiment
from pipeline.heads.head_types import CaptionFeatures, Experiment
from pipeline.heads.presets import PRESETS
from pipeline.retrieval.ensemble import ENSEMBLES
from pipeline.store.errors import UnknownName
from pipeline.store.wording import did_you_mean
from stages.params import PARAMS_FILE, ExperimentEntry, Params


def experiment_of(params: Params, name: str, size: Size | None = None) -> Experiment:
    """Return an experiment of the file or a published system: its preset at a size, with overrides.

    NAME@FEATURES is either on other features. The default size is that of the file.
    """
    base, at, others = name.partition("@")
    if at and name not in params.experiments:
        return _with_options(params, on_features(experiment_of(params, base, size), others))
    require_experiments(params, [name])
    entry = params.experiments.get(name, ExperimentEntry())
    plan = resolve_experiment(
        name,
        preset=entry.preset,
        head=entry.head,
        size=size or params.size,
        images=entry.images,
        captions=CaptionFeatures(entry.captions, entry.captions) if entry.captions else None,
        settings=entry.settings,
        word_vectors=entry.word_vectors,
        average_captions=entry.average_captions,
        finetuning=entry.finetuning,
        precision=entry.precision,
        csls=entry.csls,
    )
    return _with_options(params, plan)


def _with_options(params: Params, plan: Experiment) -> Experiment:
    """Return an experiment with the caption features of the file, if it names their folder."""
    folder = plan.captions.name
    if (features := params.caption_features.get(folder)) is not None:
        plan = replace(plan, captions=CaptionFeatures(folder, features.encoder, features.options))
    return plan


class _Experiments(Mapping[str, Experiment]):
    """The experiments of the file, and published systems, each resolved when it is asked for.

    The head of one that is not may be in a package that is not installed.
    """

    def __init__(self, params: Params, size: Size) -> None:
        self._names = {*params.experiments, *PRESETS}
        self._resolved = cache(lambda name: experiment_of(params, name, size))

    def __getitem__(self, name: str) -> Experiment:
        if name not in self._names:
            raise KeyError(name)
        return self._resolved(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def require_experiments(params: Params, names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise UnknownName unless each is an experiment of the file, a published system or other."""
    all_names = [*params.experiments, *PRESETS, *others]
    for name in names:
        if not {name, name.partition("@")[0]} & {*all_names}:
            where = f"{PARAMS_FILE} has no" if params.experiments else "there is no"
            only_run = "" if others else "; language models and ensembles: `pipeline run`"
            raise UnknownName(
                f"{where} experiment {name!r}, and no published system has this name; "
                f"{did_you_mean(name, all_names, 'pipeline list experiments')}{only_run}"
            )


def every_name(params: Params) -> list[str]:
    """Return the names of `pipeline run all`: experiments, published systems and ensembles."""
    # Omitted are presets on a library's model, "open-clip:<model>", whose package or weights may
    # not be available; presets that need hours without a GPU (concatenated networks, fine-tuning,
    # or `slow` for another reason); and those for clips or for `pipeline localize`.
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
    """Return the options of `pipeline.experiments.run.run` from params.yaml, at a size."""
    evaluate = dict(params.evaluate)
    if evaluate.get("captions_per_image") == 0:  # all, as the command has it
        evaluate["captions_per_image"] = None
    return {
        "experiments": _Experiments(params, size),
        "size": size,
        "ensembles": {
            name: params.ensemble(name) or ENSEMBLES.get(name, {}) for name in params.ensembles
        },
        "test_split": params.splits.test,
        "extract": params.extract_options,
        "word_vectors": {**TRAINED_VECTORS, **params.word_vectors},
        "evaluate": evaluate,
    }
