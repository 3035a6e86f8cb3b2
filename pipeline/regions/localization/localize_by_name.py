"""Phrase localization by experiment name."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pipeline.experiments.layout import DATA, Layout
from pipeline.experiments.steps.step import Plan
from pipeline.heads.experiments import Size, experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.regions.localization.sources import Sources
from pipeline.regions.localization.steps import localize_experiments
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
    root: str | Path = DATA,
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
    root : str or Path. Folder of all inputs and outputs.
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
    layout, finder = Layout(Path(dataset), Path(root)), experiment_finder(experiments, size)
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
