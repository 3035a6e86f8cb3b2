"""The job of `pipeline run`: from a dataset to recall tables of experiments, in one process."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.experiments.layout import Layout, seeded
from pipeline.experiments.steps.experiment_steps import add_ensemble, add_experiment
from pipeline.experiments.steps.given_steps import given_sets
from pipeline.experiments.steps.kinds import ExperimentKind, experiment_kinds, kind_of
from pipeline.experiments.steps.step import Plan
from pipeline.heads import HeadError
from pipeline.heads.experiments import TRAINED_VECTORS, Size, experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.retrieval.ensemble import ENSEMBLES, members_in
from pipeline.retrieval.provenance import columns_of
from pipeline.retrieval.tables import (
    PROVENANCE_FILE,
    RECALL_FILE,
    SEEN,
    Row,
    read_provenance,
    read_recall,
)
from pipeline.store.devices import AUTO, choose_device, choose_precision
from pipeline.store.errors import PipelineError, WrongUsage
from pipeline.store.one_or_many import texts_of
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FailedRows


@dataclass(frozen=True)
class FailedExperiment:
    """An experiment that failed."""

    name: str  # with its seed if there are several
    step: str  # the failed step, such as "text fv-hglmm-pca1000"
    error: PipelineError

    @property
    def of_rows(self) -> bool:
        """Whether the reason is that some images have no features."""
        return isinstance(self.error, FailedRows)


class RunFailed(PipelineError):
    """Some experiments failed; all independent ones are finished.

    Attributes
    ----------
    result : RunResult. Result of the others.
    failed : tuple of FailedExperiment. In request order.
    """

    def __init__(self, result: "RunResult", failed: Sequence[FailedExperiment]) -> None:
        self.result, self.failed = result, tuple(failed)
        super().__init__("; ".join(f"{f.name}: {f.step}: {f.error}" for f in failed))


@dataclass(frozen=True)
class RunResult:
    """Result of a run.

    Attributes
    ----------
    tables : dict. Recall table by experiment, in request order, with the column `SEEN` if an
        encoder was trained on the dataset; {} for a dry run.
    made : tuple of str. Steps that changed their output or, for a dry run, would run.
    perplexities : dict. Validation perplexity of each language model; an out-of-vocabulary word
        counts as one word.
    outputs : tuple of Path. Existing outputs of all steps, in their order.
    """

    tables: Mapping[str, Row]
    made: tuple[str, ...]
    perplexities: Mapping[str, float] = field(default_factory=dict)
    outputs: tuple[Path, ...] = ()


def run(
    names: str | Iterable[str],
    dataset: str | Path,
    *,
    experiments: Mapping[str, Experiment] | None = None,
    ensembles: Mapping[str, Mapping[str, float]] | None = None,
    root: str | Path | None = None,
    size: Size = "small",
    seeds: int = 1,
    training: TrainingOptions = DEFAULT_TRAINING,
    test_split: str | None = None,
    extract: Mapping[str, Any] | None = None,
    word_vectors: Mapping[str, Mapping[str, Any]] | None = None,
    evaluate: Mapping[str, Any] | None = None,
    corpus: str | Path | None = None,
    image_features: str | Path | None = None,
    caption_features: str | Path | None = None,
    dry_run: bool = False,
    monitor: Monitor = QUIET,
) -> RunResult:
    """Compute everything that is missing or stale for the recall tables of experiments.

    The output files and bytes are those of the single commands, in the same locations. Shared
    inputs are computed once. An interrupted run resumes.

    If the dataset or options have changed since the last call, only what depends on the change is
    recomputed: features keep the rows of unchanged images and captions; features of other options
    are moved aside, see `pipeline.store.jobs.options.Storage`.

    Parameters
    ----------
    names : str or iterable of str. Experiments, ensembles and language models; NAME@RECIPE is one
        of them on other image features, NAME@@ENCODER on other caption features.
    dataset : str or Path. Folder of a prepared dataset.
    experiments : mapping of str to Experiment, or None. Experiments by name; take precedence over
        `PRESETS`.
    ensembles : mapping of str to mapping of str to float, or None. Weights of members by ensemble;
        take precedence over `ENSEMBLES`.
    root : str, Path or None. Folder of all outputs; None: see `Layout`.
    size : str. Size of the presets: "tiny", "small" or "paper"; see `resolve_experiment`.
    seeds : int. Number of trainings, with consecutive seeds from that of `training`: `vsepp`, then
        `vsepp-seed1` and so on, each with its own files.
    training : TrainingOptions. Options of all heads and language models; its monitor is `monitor`.
        `leave_out_failed` also applies to embeddings, `device` to all features and tables.
    test_split : str or None. Split to embed and evaluate; None: the test split.
    extract : mapping of str to object, or None. Options of `pipeline.extract`.
    word_vectors : mapping of str to mapping of str to object, or None. Options of `store_vectors`
        by name; None: those of the presets.
    evaluate : mapping of str to object, or None. Options of `pipeline.evaluate`.
    corpus : str or Path or None. UTF-8 file with one sentence per line, on which language models
        such as `kiros2014-sc-nlm-corpus` are trained in addition to the captions.
    image_features, caption_features : str, Path or None. Feature set with a row for each image, or
        for each caption `<image id>#<k>`, for all experiments in place of their own: `vsepp`
        becomes `vsepp@IMAGES`, `vsepp@@CAPTIONS` or `vsepp@IMAGES@@CAPTIONS`, with the names of the
        folders. The set is linked among the outputs.
    dry_run : bool. Only log the steps, with sizes.
    monitor : Monitor. Receives a line before each step, its log lines and its progress.

    Returns
    -------
    RunResult
        Recall tables, in per cent, and the steps that changed their output.

    Raises
    ------
    HeadError
        A name is not a preset.
    LanguageError
        A language model needs `corpus`, or none uses it.
    DatasetError
        The dataset is missing, lacks a split, or has no captions.
    MissingRows, WrongUsage
        A given set lacks rows, is of another dataset, or has the name of other features.
    RunFailed
        Steps failed; all independent experiments are finished.
    PipelineError
        A system error, such as a full disk; earlier steps are finished and kept.

    Examples
    --------
    >>> result = pipeline.run("qian2018-baseline", "data/mine", size="tiny")
    >>> result.tables["qian2018-baseline"]["num_images"], result.made
    (4, ())
    """
    names, _ = texts_of(names, "experiment")
    layout = Layout(dataset, root)
    given, end = given_sets(layout, image_features, caption_features)
    if end and (named := [name for name in names if "@" in name]):
        raise WrongUsage(
            f"{named[0]} names its features; omit what is behind {named[0].partition('@')[0]}, or "
            "`image_features=...` and `caption_features=...`"
        )
    names = [f"{name}{end}" for name in names]
    defined = experiments or {}
    requested = training.device
    training = replace(training, device=choose_device(requested, monitor), monitor=monitor)
    training = training.with_named_precision()
    extract, evaluate = dict(extract or {}), dict(evaluate or {})
    # An explicit device of the run takes precedence over that of `extract`.
    if requested != AUTO or extract.get("device", AUTO) == AUTO:
        extract["device"] = training.device
    if "precision" in extract:
        device = extract.get("device", AUTO)
        extract["precision"] = choose_precision(extract["precision"], device, monitor)
    # Ranking needs float64, which "mps" lacks.
    evaluate.setdefault("device", "cpu" if training.device == "mps" else training.device)

    experiment_named = experiment_finder(defined, size)
    plan = Plan(
        layout,
        training=training,
        test_split=test_split,
        extract=extract,
        word_vectors=TRAINED_VECTORS if word_vectors is None else word_vectors,
        evaluate=evaluate,
        corpus=None if corpus is None else Path(corpus),
        given=given,
        experiment_named=experiment_named,
    )
    every_seed = range(training.seed, training.seed + seeds)
    ensembles = {**ENSEMBLES, **(ensembles or {})}
    for kind in experiment_kinds():
        kind.check(names, plan.corpus)
    kinds: dict[str, ExperimentKind] = {}

    def add(name: str) -> None:
        of_family = None if name in defined else kind_of(name)
        members = {} if name in defined else members_in(ensembles, name)
        for each in every_seed:
            if of_family is not None:
                of_family.add(plan, name, size, each)
                kinds[seeded(name, each, training.seed)] = of_family
                continue
            for member in members or (name,):
                add_experiment(plan, experiment_named(member), each)
            if members:
                weights = {seeded(m, each, training.seed): weight for m, weight in members.items()}
                add_ensemble(plan, seeded(name, each, training.seed), weights)

    failed: list[FailedExperiment] = []
    for name in names:
        before = dict(plan.steps)
        try:
            add(name)
        except (HeadError, WrongUsage) as error:
            if not end or len(failed) == len(names) - 1:  # or none is left
                raise
            # Of `all`, some read vectors and some grids, and given features are one of them.
            plan.steps.clear()
            plan.steps.update(before)
            failed.append(FailedExperiment(name, "inputs", error))
            monitor.log(f"{name} is left out: {error}")
    names = [name for name in names if name not in {one.name for one in failed}]
    plan.require_all()
    if dry_run:
        return RunResult({}, plan.announce(monitor))
    trained = [seeded(name, each, training.seed) for name in names for each in every_seed]
    outs = {
        name: kinds[name].out(plan.layout, name) if name in kinds else plan.layout.evaluation(name)
        for name in trained
    }
    changed, failures = plan.make(monitor)
    failed += [
        FailedExperiment(name, failures[outs[name]].step, failures[outs[name]].error)
        for name in trained
        if outs[name] in failures
    ]
    finished = [name for name in trained if outs[name] not in failures]
    tables = {name: _row(outs[name]) for name in finished if name not in kinds}
    perplexities = {name: kinds[name].perplexity(outs[name]) for name in finished if name in kinds}
    result = RunResult(tables, changed, perplexities, plan.outputs)
    if failed:
        raise RunFailed(result, failed)
    return result


def _row(evaluation: Path) -> Row:
    columns = columns_of(read_provenance(evaluation / PROVENANCE_FILE))
    seen = {SEEN: columns[SEEN]} if SEEN in columns else {}
    return {**seen, **read_recall(evaluation / RECALL_FILE)}
