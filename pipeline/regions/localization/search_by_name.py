"""Search for the boxes of phrases by experiment name, in the files of `pipeline.localize`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.experiments.layout import Layout, unseeded
from pipeline.experiments.searchers import require_file
from pipeline.heads.experiments import experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.regions.localization.region_searcher import RegionSearcher
from pipeline.store.errors import WrongUsage
from pipeline.store.progress import QUIET, Monitor


def open_region_searcher(
    experiment: str,
    dataset: str | Path,
    *,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> RegionSearcher:
    """Return a searcher for the boxes of phrases, from an experiment of `pipeline.localize`.

    As `pipeline.open_searcher`, but its results are boxes in images.

    Parameters
    ----------
    experiment : str. Name of the experiment; `NAME-seed1` and so on for further trainings.
    dataset : str or Path. Folder of a prepared dataset with phrases.
    experiments : mapping of str to Experiment, or None. Override presets of the same names.
    root : str, Path or None. Folder of all inputs and outputs; None: see `Layout`.
    monitor : Monitor. Receives log lines.

    Raises
    ------
    NotMade
        The experiment has no localization file.
    HeadError, RegionError
        No experiment has this name, or the file is corrupt.

    Examples
    --------
    >>> searcher = pipeline.open_region_searcher(
    ...     "wang2016-region-phrase", "data/mine"
    ... )  # doctest: +SKIP
    >>> [(hit.id, hit.box) for hit in searcher.by_phrases("a red ball")]  # doctest: +SKIP
    """
    sources = find_region_sources(
        experiment,
        Layout(dataset, root),
        experiment_finder(experiments),
        remedy=f"pipeline.localize({experiment!r}, {str(dataset)!r}, method=...)",
    )
    return RegionSearcher(**sources, monitor=monitor)


def find_region_sources(
    experiment: str,
    layout: Layout,
    experiment_named: Callable[[str], Experiment],
    *,
    remedy: str,
    localization: Path | None = None,
    head: Path | None = None,
    encoder: Path | None = None,
) -> dict[str, Any]:
    """Return the arguments of `RegionSearcher` but `monitor`, from an experiment's locations."""
    of = experiment_named(unseeded(experiment))
    if localization is None:
        localization = layout.localization(experiment)
        if not (of.of_phrases or localization.is_file()):
            raise WrongUsage(f"{experiment} is not fitted on regions; omit `regions=True`")
        require_file(localization, remedy)
    return {
        "file": localization,
        "dataset": layout.dataset,
        "head": head or layout.head(experiment),
        "encoder": encoder or layout.encoder(of.captions.name),
    }
