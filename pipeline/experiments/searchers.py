"""Search and server of an experiment by name, from the files of `pipeline.run`."""

from collections.abc import Callable, Container, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.experiments.layout import DATA, Layout, NotMade, unseeded
from pipeline.experiments.whole_dataset import searched_embeddings
from pipeline.heads.experiments import experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.language.captioning.captioners import open_captioner
from pipeline.language.captioning.picture_captions import describe_picture
from pipeline.regions.localization.region_searcher import RegionSearcher
from pipeline.retrieval.embedding_file import read_provenance
from pipeline.retrieval.ensemble import ENSEMBLES
from pipeline.retrieval.query.searcher import Searcher
from pipeline.store.errors import WrongUsage
from pipeline.store.progress import QUIET, Monitor
from pipeline.studies.embedding_map.plane import Projection


def open_searcher(
    experiment: str,
    dataset: str | Path,
    *,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path = DATA,
    split: str | None = None,
    weights: str | None = None,
    monitor: Monitor = QUIET,
) -> Searcher:
    """Return a searcher for the images and sentences of an experiment or ensemble.

    The whole dataset is searched: its embedding file is written on the first call, and rewritten if
    the head, the dataset or the features have changed.

    Parameters
    ----------
    experiment : str. Name of an experiment or ensemble computed by `pipeline.run`.
    dataset : str or Path. Folder of its dataset.
    experiments : mapping of str to Experiment, or None. As passed to `pipeline.run`.
    root : str or Path. Output folder of `pipeline.run`.
    split : str or None. Search one split, or several separated by commas; None: all.
    weights : str or None. Weights of the image network; None: as recorded in the head.
    monitor : Monitor. Receives log lines on embedding, unknown words and changed datasets.

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
    own = experiments or {}
    sources = find_sources(
        experiment,
        Layout(Path(dataset), Path(root)),
        experiment_finder(own),
        ensembles={*ENSEMBLES} - {*own},
        remedy=f"pipeline.run({experiment!r}, {str(dataset)!r})",
        split=split,
        monitor=monitor,
    )
    return Searcher(**sources, weights=weights, monitor=monitor)


def open_region_searcher(
    experiment: str,
    dataset: str | Path,
    *,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path = DATA,
    monitor: Monitor = QUIET,
) -> RegionSearcher:
    """Return a searcher for the boxes of phrases, from an experiment of `pipeline.localize`.

    Parameters
    ----------
    experiment, dataset, experiments, root, monitor : see `open_searcher`.

    Raises
    ------
    NotMade
        The experiment has no localization file.
    HeadError, LocalizationError
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
        Layout(Path(dataset), Path(root)),
        experiment_finder(experiments),
        remedy=f"pipeline.localize({experiment!r}, {str(dataset)!r}, method=...)",
    )
    return RegionSearcher(**sources, monitor=monitor)


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
    """Return the locations of an experiment's embeddings and models.

    The embedding file of the whole dataset is computed if it is missing or stale.

    Parameters
    ----------
    experiment : str. Name of an experiment or ensemble, possibly with a seed.
    layout : Layout. Paths of the files.
    experiment_named : callable. Returns an experiment by its name without seed.
    ensembles : container of str. Names of ensembles.
    remedy : str. Command that writes missing files, for messages.
    embeddings, head, encoder : Path or None. Locations other than those of the layout.
    split : str or None. See `open_searcher`.
    monitor : Monitor. Receives log lines and progress.

    Returns
    -------
    dict
        The arguments of `Searcher`, without `weights` and `monitor`. An ensemble has those of its
        members instead of head and encoder.

    Raises
    ------
    NotMade
        The experiment or ensemble has not been trained on the dataset.
    WrongUsage
        It is on regions and phrases.
    """
    joined = layout.ensemble(experiment)
    base = unseeded(experiment).partition("@")[0]
    of_ensemble = joined.is_file() or base in ensembles

    def named(name: str) -> Experiment:
        found = experiment_named(name)
        if found.of_phrases:
            raise WrongUsage(f"{name} is fitted on regions and phrases; add `regions=True`")
        return found

    if embeddings is None:
        if of_ensemble:
            _require(joined, remedy)
        embeddings = searched_embeddings(
            experiment, layout, named, remedy=remedy, head=head, split=split, monitor=monitor
        )
    members: list[tuple[Path, Path]] = []
    if of_ensemble:
        names = [str(one.get("experiment")) for one in read_provenance(embeddings)["ensemble"]]
        members = [_models_of(name, layout, named) for name in names]
    else:
        captions = experiment_named(unseeded(experiment)).captions.name
        head, encoder = head or layout.head(experiment), encoder or layout.encoder(captions)
    return {
        "embeddings": embeddings,
        "dataset": layout.dataset,
        "head": head,
        "encoder": encoder,
        "members": members,
        "split": split,
    }


def _models_of(
    name: str, layout: Layout, experiment_named: Callable[[str], Experiment]
) -> tuple[Path, Path]:
    """Return the folders of the head and the encoder of an experiment."""
    captions = experiment_named(unseeded(name)).captions.name
    return layout.head(name), layout.encoder(captions)


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
    """Return the locations of an experiment's localization file and models.

    Parameters
    ----------
    experiment, layout, experiment_named, remedy, head, encoder : see `find_sources`.
    localization : Path or None. The file, if not in the layout's location.

    Returns
    -------
    dict
        The arguments of `RegionSearcher`, without `monitor`.

    Raises
    ------
    NotMade
        The experiment has no localization file.
    WrongUsage
        It is not on regions.
    """
    of = experiment_named(unseeded(experiment))
    if localization is None:
        localization = layout.localization(experiment)
        if not (of.of_phrases or localization.is_file()):
            raise WrongUsage(f"{experiment} is not fitted on regions; omit `regions=True`")
        _require(localization, remedy)
    return {
        "file": localization,
        "dataset": layout.dataset,
        "head": head or layout.head(experiment),
        "encoder": encoder or layout.encoder(of.captions.name),
    }


def serve(
    experiment: str,
    dataset: str | Path,
    *,
    localize: bool = False,
    language_model: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    top: int = 12,
    projection: Projection = "pca",
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path = DATA,
    split: str | None = None,
    weights: str | None = None,
    monitor: Monitor = QUIET,
) -> None:
    """Serve a search page of an experiment until interrupted.

    Parameters
    ----------
    experiment, dataset, experiments, root, split, weights : see `open_searcher`.
    localize : bool. Search phrases and mark their boxes; see `open_region_searcher`.
    language_model : str or None. Name of a language model that captions uploaded images.
    host : str. Address to listen on; other than local addresses log a warning.
    port : int. 0 for any free port.
    top : int. Number of hits per page.
    projection : str. Projection of the map: "pca" or the slower "tsne".
    monitor : Monitor. Receives the address once the server is ready, and rejected requests.

    Raises
    ------
    WrongUsage
        `language_model` with `localize`.
    NotMade, HeadError, ServeError, LanguageError
        See `open_searcher`; the port is not free, or the language model is missing.

    Examples
    --------
    >>> pipeline.serve("vsepp", "data/mine", port=8000)  # doctest: +SKIP
    """
    # Imported here: a search needs no server.
    from pipeline.web.serve.server import Server

    if localize and language_model:
        raise WrongUsage("language_model describes uploads, which localize=True does not accept")
    describe = None
    searcher: Searcher | RegionSearcher
    if localize:
        searcher = open_region_searcher(
            experiment, dataset, experiments=experiments, root=root, monitor=monitor
        )
    else:
        searcher = open_searcher(
            experiment, dataset, experiments=experiments, root=root, split=split, weights=weights,
            monitor=monitor,
        )  # fmt: skip
    if language_model:
        layout = Layout(Path(dataset), Path(root))
        opened = open_captioner(language_model, layout, experiment_finder(experiments))
        describe = partial(describe_picture, opened.captioner, opened.network(), count=3)
    with Server(
        searcher, host=host, port=port, top=top, describe=describe, projection=projection,
        monitor=monitor,
    ) as server:  # fmt: skip
        monitor.log(server.url)
        server.run()


def _require(file: Path, remedy: str) -> None:
    if not file.is_file():
        raise NotMade(f"{file} not found; run {remedy}")
