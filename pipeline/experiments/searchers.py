"""Search with an experiment by name, in the files of `pipeline.run`."""

from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from pipeline.experiments.layout import Layout, NotMade, unseeded
from pipeline.experiments.whole_dataset import searched_embeddings
from pipeline.heads import HeadError
from pipeline.heads.experiments import experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.retrieval.embedding_file import read_provenance
from pipeline.retrieval.ensemble import ENSEMBLES
from pipeline.retrieval.query.searcher import Searcher
from pipeline.store.errors import WrongUsage
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.registry import PluginError


def open_searcher(
    experiment: str,
    dataset: str | Path,
    *,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path | None = None,
    split: str | None = None,
    weights: str | None = None,
    monitor: Monitor = QUIET,
) -> Searcher:
    """Return a searcher for the images and sentences of an experiment or ensemble.

    As `pipeline.Searcher`, but the files are found by name. The whole dataset is searched: its
    embedding file is written on the first call, and rewritten if the head, the dataset or the
    features have changed.

    Parameters
    ----------
    experiment : str. Name of an experiment or ensemble computed by `pipeline.run`.
    dataset : str or Path. Folder of its dataset.
    experiments : mapping of str to Experiment, or None. As passed to `pipeline.run`.
    root : str, Path or None. Output folder of `pipeline.run`; None: see `Layout`.
    split : str or None. Search one split, or several separated by commas; None: all.
    weights : str or None. Weights of the image network; None: as recorded in the head.
    monitor : Monitor. Receives log lines on embedding, unknown words and changed datasets.

    Returns
    -------
    Searcher
        Opened on one embedding file; further calls of its methods compute queries only.

    Raises
    ------
    NotMade
        The experiment has no head, or features are missing.
    HeadError
        No experiment has this name.
    EmbeddingsError
        The file is corrupt.

    Examples
    --------
    >>> searcher = pipeline.open_searcher("qian2018-baseline", "data/mine")
    >>> [hit.rank for hit in searcher.by_sentences("a red ball", top=3)]
    [1, 2, 3]
    """
    defined = experiments or {}
    sources = find_sources(
        experiment,
        Layout(dataset, root),
        experiment_finder(defined),
        ensembles={*ENSEMBLES} - {*defined},
        remedy=f"pipeline.run({experiment!r}, {str(dataset)!r})",
        split=split,
        monitor=monitor,
    )
    return Searcher(**sources, weights=weights, monitor=monitor)


def find_sources(
    experiment: str,
    layout: Layout,
    experiment_named: Callable[[str], Experiment],
    *,
    ensembles: Container[str],
    remedy: str,
    embeddings: Path | None = None,
    head: Path | None = None,
    encoder: Path | None = None,
    split: str | None = None,
    monitor: Monitor = QUIET,
) -> dict[str, Any]:
    """Return the arguments of `Searcher` for an experiment, without `weights` and `monitor`.

    The embedding file of the whole dataset is computed if it is missing or stale. An ensemble has
    the heads and encoders of its members. `remedy` is the command that writes missing files, for
    messages; `embeddings`, `head` and `encoder` override the paths of the layout.
    """
    joined = layout.ensemble(experiment)
    base = unseeded(experiment).partition("@")[0]
    of_ensemble = joined.is_file() or base in ensembles

    def named(name: str) -> Experiment:
        published = experiment_named(name)
        if published.of_phrases:
            raise WrongUsage(f"{name} is fitted on regions and phrases; add `regions=True`")
        return published

    if embeddings is None:
        if of_ensemble:
            require_file(joined, remedy)
        embeddings = searched_embeddings(
            experiment, layout, named, remedy=remedy, head=head, split=split, monitor=monitor
        )
    members: list[tuple[Path, Path]] = []
    if of_ensemble:
        names = [str(one.get("experiment")) for one in read_provenance(embeddings)["ensemble"]]
        encoders = [layout.encoder(named(unseeded(name)).captions.name) for name in names]
        members = [*zip(map(layout.head, names), encoders, strict=True)]
    else:
        try:
            captions = experiment_named(unseeded(experiment)).captions.name
        except (HeadError, PluginError):  # without its package: what its head was fitted on
            captions = experiment
        head, encoder = head or layout.head(experiment), encoder or layout.encoder(captions)
    return {
        "embeddings": embeddings,
        "dataset": layout.dataset,
        "head": head,
        "encoder": encoder,
        "members": members,
        "split": split,
    }


def require_file(file: Path, remedy: str) -> None:
    """Raise unless a file of an experiment exists; the message names the command that makes it."""
    if not file.is_file():
        raise NotMade(f"{file} not found; run {remedy}")
