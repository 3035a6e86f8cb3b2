"""Probes of an experiment by name, from the files of `pipeline.run`."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.datasets.image_truth import truth_of
from pipeline.experiments.searchers import open_searcher
from pipeline.heads.head_types import Experiment
from pipeline.store.progress import QUIET, Monitor
from pipeline.studies.probes.probe import Probes
from pipeline.studies.probes.probe import probe as probe_searcher


def probe(
    experiment: str,
    dataset: str | Path,
    *,
    split: str | None = None,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> Probes:
    """Return what the embedding space of an experiment encodes about a dataset's images.

    Linear probes answer questions about images from their embeddings, such as which objects they
    show. Foils are captions with one change that makes them wrong: is the image nearer to the
    right one?

    Parameters
    ----------
    experiment, dataset, experiments, root : see `pipeline.open_searcher`.
    split : str or None. Split to measure; None: the test split.
    monitor : Monitor. Receives log lines on embedded and skipped items.

    Returns
    -------
    Probes
        Per question the area under the ROC curve, and per kind of foil the robustness, in per cent.

    Raises
    ------
    StudyError
        The file has no captioned image of the split, or no caption has a foil.
    DatasetError
        The dataset has no such split.
    NotMade, HeadError, EmbeddingsError
        Head, encoder or embeddings are missing, or do not belong together.

    Examples
    --------
    >>> found = pipeline.probe("qian2018-baseline", "data/mine")
    >>> found.test, "relation" in found.foils
    ('test', True)
    """
    searcher = open_searcher(
        experiment, dataset, experiments=experiments, root=root, monitor=monitor
    )
    truth = truth_of(searcher.embedded.manifest)
    return probe_searcher(searcher, truth, split=split, monitor=monitor)
