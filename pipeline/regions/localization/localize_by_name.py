"""Phrase localization by experiment name: steps that train heads and localize a split."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pipeline.experiments.layout import Layout, seeded
from pipeline.experiments.steps.head_steps import expected_training, head_record
from pipeline.experiments.steps.step import Plan, Step
from pipeline.heads.experiments import Size, experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.heads.trained_head import TENSORS_FILE
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.regions import RegionError
from pipeline.regions.localization.localize import localize as localize_split
from pipeline.regions.localization.localized import read_localized
from pipeline.regions.localization.sources import Sources
from pipeline.regions.localization.train_localizer import fit_to_phrases
from pipeline.store.current.record import Record
from pipeline.store.hashing import sha256_of_file
from pipeline.store.one_or_many import texts_of
from pipeline.store.progress import QUIET, Monitor


def localize(
    names: str | Iterable[str],
    dataset: str | Path,
    *,
    method: str,
    recipe: str | None = None,
    proposals: str | Path | None = None,
    regions: str | Path | None = None,
    truth: str | Path | None = None,
    phrases: str | Path | None = None,
    most: int = 100,
    split: str | None = None,
    seeds: int = 1,
    validation_images: int | None = None,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    size: Size = "small",
    training: TrainingOptions = DEFAULT_TRAINING,
    monitor: Monitor = QUIET,
) -> tuple[str, ...]:
    """Train phrase localization heads, and rank the proposals of each image by its phrases.

    Missing and stale outputs are computed: heads, the heads that they start from, and the
    localization files, which `pipeline.evaluate_localized` measures. Proposals, their features and
    those of the phrases are read from the output folders of their commands.

    Parameters
    ----------
    names : str or iterable of str. Experiments on regions and phrases.
    dataset : str or Path. Folder of a prepared dataset with phrases.
    method : str. Proposals to rank, by their name in proposals/DATASET below `root`.
    recipe : str or None. Recipe of the region features; None: that of each experiment.
    proposals, regions, truth, phrases : str, Path or None. Other folders of the proposals, their
        features, those of the true boxes and those of the phrases.
    most : int. Maximal number of proposals per image; the first ones are used.
    split : str or None. Split to localize; None: the test split.
    seeds : int. Number of trainings, with consecutive seeds from that of `training`: `NAME`, then
        `NAME-seed1` and so on, each with its own head and localization file.
    validation_images : int or None. Select the epoch on the first images of the validation split;
        None: on all.
    experiments : mapping of str to Experiment, or None. Override presets of the same names.
    root : str, Path or None. Folder of all inputs and outputs; None: see `Layout`.
    size : str. Size of the presets: "tiny", "small" or "paper".
    training : TrainingOptions. Options of all heads; its monitor is `monitor`.
    monitor : Monitor. Receives a line before each step, its log lines and its progress.

    Returns
    -------
    tuple of str
        The steps that changed their output.

    Raises
    ------
    RegionError
        An experiment is not on regions and phrases, or folders do not match each other.
    HeadError, DatasetError, ShardError
        A name is unknown, or the dataset or features are missing.

    References
    ----------
    Wang, Li and Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016,
    section 3.3.

    Examples
    --------
    >>> pipeline.localize(
    ...     "wang2016-region-phrase", "data/mine", method="edge-boxes"
    ... )  # doctest: +SKIP
    """
    training = replace(training, monitor=monitor).with_named_precision()
    layout, finder = Layout(dataset, root), experiment_finder(experiments, size)
    runs = []
    for name in texts_of(names, "experiment")[0]:
        experiment = finder(name)
        of_recipe = recipe or experiment.images
        sources = Sources(
            dataset=layout.dataset,
            phrases=Path(phrases or layout.text(experiment.captions.name)),
            truth=Path(truth or layout.regions(of_recipe, "ground-truth")),
            proposals=Path(proposals or layout.proposals(method)),
            regions=Path(regions or layout.regions(of_recipe, method)),
            most=most,
        )
        runs.append((experiment, sources))
    return localize_experiments(
        Plan(layout, training, test_split=split, experiment_named=finder),
        runs,
        seeds=seeds,
        validation_images=validation_images,
        monitor=monitor,
    )


def localize_experiments(
    plan: Plan,
    experiments: Iterable[tuple[Experiment, Sources]],
    *,
    seeds: int = 1,
    validation_images: int | None = None,
    monitor: Monitor,
) -> tuple[str, ...]:
    """Train missing and stale heads of experiments, then localize; return the changed steps."""
    distinct: dict[Sources, Sources] = {}
    for experiment, data in experiments:
        sources = distinct.setdefault(data, data)  # equal ones are opened once
        if not experiment.of_phrases:
            raise RegionError(
                f"{experiment.name!r} is fitted on images and captions, not on regions and "
                "phrases; use the presets wang2016-phrases-*, or `pipeline run` for the others"
            )
        for seed in range(plan.training.seed, plan.training.seed + seeds):
            start = None
            if experiment.goes_on_from is not None:
                base = plan.experiment_named(experiment.goes_on_from)
                start = _add_head(plan, base, sources, validation_images, None, seed)
            head = _add_head(plan, experiment, sources, validation_images, start, seed)
            name = seeded(experiment.name, seed, plan.training.seed)
            _add_localization(plan, name, sources, head)
    changed, failures = plan.make(monitor)
    if failures:
        causes = dict.fromkeys(failures.values())  # each once, also if several steps need it
        raise RegionError("; ".join(f"{failure.step}: {failure.error}" for failure in causes))
    return changed


def _add_head(
    plan: Plan,
    experiment: Experiment,
    sources: Sources,
    validation_images: int | None,
    start: Path | None,
    seed: int,
) -> Path:
    """Add the step that trains a phrase head with a seed."""
    experiment = replace(experiment, name=seeded(experiment.name, seed, plan.training.seed))
    out = plan.layout.head(experiment.name)

    def expected() -> Record:
        made_from = sources.opened.made_from_with(validation_images)
        if start is not None:
            made_from["start_sha256"] = sha256_of_file(start / TENSORS_FILE)
        return {**expected_training(plan, experiment, seed), "made_from": made_from}

    def make(monitor: Monitor) -> object:
        trained = fit_to_phrases(
            sources,
            out,
            experiment=experiment,
            start=start,
            validation_images=validation_images,
            training=replace(plan.training, seed=seed, monitor=monitor),
        )
        monitor.log(", ".join(f"{k} {v:g}" for k, v in trained.chosen.items() if k != "best"))
        return trained

    needs = (sources.truth, sources.phrases, *([] if start is None else [start]))
    size = f"head {experiment.head}"
    return plan.add(Step("train", experiment.name, out, needs, size, make, head_record, expected))


def _add_localization(plan: Plan, name: str, sources: Sources, head: Path) -> Path:
    """Add the step that localizes a split with a trained head."""
    out = plan.layout.localization(name)

    def read(file: Path) -> Record | None:
        return read_localized(file).provenance if file.is_file() else None

    def expected() -> Record:
        return {
            "tensors_sha256": sha256_of_file(head / TENSORS_FILE),
            "split": plan.split("test"),
            **sources.opened.made_from,
        }

    def make(monitor: Monitor) -> object:
        return localize_split(
            sources,
            out,
            head=head,
            split=plan.test_split,
            leave_out_failed=plan.training.leave_out_failed,
            monitor=monitor,
        )

    needs, size = (sources.regions, sources.phrases, head), "boxes of phrases"
    return plan.add(Step("localize", name, out, needs, size, make, read, expected))
