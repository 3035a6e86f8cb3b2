"""The job of `pipeline run`: from a dataset to the recall tables of experiments, in one process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.experiments.experiment_steps import add_experiment
from pipeline.experiments.language_steps import add_language_model
from pipeline.experiments.layout import DATA, Layout, seeded
from pipeline.experiments.result_steps import add_ensemble
from pipeline.experiments.steps import Plan
from pipeline.heads.experiments import TRAINED_VECTORS, Size, resolve_experiment
from pipeline.heads.head_types import Experiment
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.language.presets import LANGUAGE_PRESETS, resolve_language_experiment
from pipeline.language.trained_model import load_language_model
from pipeline.progress import QUIET, Monitor
from pipeline.report.results import columns_of
from pipeline.retrieval.ensemble import ENSEMBLES
from pipeline.retrieval.tables import (
    PROVENANCE_FILE,
    RECALL_FILE,
    SEEN,
    Row,
    read_provenance,
    read_recall,
)


@dataclass(frozen=True)
class RunResult:
    """What a run did.

    Attributes
    ----------
    tables : by experiment, in the asked order, its recall table, with the column `SEEN` where an
        encoder has seen the dataset; {} of a dry run.
    made : the steps that were done or, of a dry run, that would be.
    perplexities : of the language models among the experiments, on the validation split; a word out
        of vocabulary counts as one word.
    """

    tables: Mapping[str, Row]
    made: tuple[str, ...]
    perplexities: Mapping[str, float] = field(default_factory=dict)


def run(
    names: Sequence[str],
    dataset: str | Path,
    *,
    experiments: Mapping[str, Experiment] | None = None,
    ensembles: Mapping[str, Mapping[str, float]] | None = None,
    root: str | Path = DATA,
    size: Size = "small",
    seeds: int = 1,
    training: TrainingOptions = DEFAULT_TRAINING,
    test_split: str | None = None,
    extract: Mapping[str, Any] | None = None,
    word_vectors: Mapping[str, Mapping[str, Any]] | None = None,
    evaluate: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    monitor: Monitor = QUIET,
) -> RunResult:
    """Make whatever is missing or out of date for the recall tables of some experiments.

    The files and their bytes are those of the single commands, and lie where these look for them.
    What several experiments share is made once. An interrupted run goes on where it stopped.

    Parameters
    ----------
    names : of experiments, ensembles and language models.
    dataset : folder of a prepared dataset.
    experiments : experiments by name, before the published systems of `PRESETS`.
    ensembles : members with their weights by name, before those of `ENSEMBLES`.
    root : everything is made below it; see `Layout`.
    size : of the published systems: "tiny", "small" or "paper"; see `resolve_experiment`.
    seeds : how often each is trained, with the seeds from that of `training` on: `vsepp`, then
        `vsepp-seed1` and so on, each with all its files.
    training : of all heads and language models; its monitor is `monitor`. `leave_out_failed` is
        about embeddings as well.
    test_split : the split that is embedded and measured; None: by its usual names.
    extract : options of `pipeline.images.extract.extract`.
    word_vectors : by name, options of `store_vectors`; None: those that the presets name.
    evaluate : options of `pipeline.retrieval.evaluate.evaluate`.
    dry_run : log what would be done, with sizes, and do nothing.
    monitor : gets a line before each step, its log lines and its progress.

    Raises
    ------
    HeadError
        No preset has such a name.
    DatasetError
        The dataset is missing, or lacks a split.
    PipelineError
        A step failed; those before it are done and stay.
    """
    own = experiments or {}

    def experiment_named(name: str) -> Experiment:
        return own.get(name) or resolve_experiment(name, size=size)

    plan = Plan(
        Layout(Path(dataset), Path(root)),
        training=training,
        test_split=test_split,
        extract=extract or {},
        word_vectors=TRAINED_VECTORS if word_vectors is None else word_vectors,
        evaluate=evaluate or {},
        experiment_named=experiment_named,
    )
    every_seed = range(training.seed, training.seed + seeds)
    ensembles = {**ENSEMBLES, **(ensembles or {})}
    for name in names:
        members = {} if name in own else ensembles.get(name, {})
        for each in every_seed:
            if name not in own and name in LANGUAGE_PRESETS:
                add_language_model(plan, resolve_language_experiment(name, size=size), each)
                continue
            for member in members or (name,):
                add_experiment(plan, experiment_named(member), each)
            if members:
                weights = {seeded(m, each, training.seed): weight for m, weight in members.items()}
                add_ensemble(plan, seeded(name, each, training.seed), weights)
    if dry_run:
        return RunResult({}, plan.announce(monitor))
    made = plan.make(monitor)
    trained = [seeded(name, each, training.seed) for name in names for each in every_seed]
    written = {name for name in trained if plan.layout.language(name) in plan.steps}
    tables = {name: _row(plan.layout.evaluation(name)) for name in trained if name not in written}
    models = {name: load_language_model(plan.layout.language(name)) for name in sorted(written)}
    perplexities = {name: found.chosen["perplexity"] for name, found in models.items()}
    return RunResult(tables, made, perplexities)


def _row(evaluation: Path) -> Row:
    columns = columns_of(read_provenance(evaluation / PROVENANCE_FILE))
    seen = {SEEN: columns[SEEN]} if SEEN in columns else {}
    return {**seen, **read_recall(evaluation / RECALL_FILE)}
