"""An experiment by its name, searched or served from the files that `pipeline.run` made of it."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pipeline.errors import WrongUsage
from pipeline.experiments.captioners import experiment_finder, open_captioner
from pipeline.experiments.layout import DATA, Layout, NotMade, unseeded
from pipeline.experiments.whole_dataset import searched_embeddings
from pipeline.heads.head_types import Experiment
from pipeline.progress import QUIET, Monitor
from pipeline.search.picture_captions import describe_picture
from pipeline.search.region_searcher import RegionSearcher
from pipeline.search.searcher import Searcher


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
    """Return what finds the images and sentences of an experiment, or an ensemble, by its name.

    The whole dataset is searched: its embedding file is made at the first call, and again when the
    head, the dataset or the features have changed.

    Parameters
    ----------
    experiment : str. Name of an experiment or ensemble that `pipeline.run` has made.
    dataset : str or Path. Folder of its dataset.
    experiments : mapping of str to Experiment, or None. What `pipeline.run` was called with.
    root : str or Path. Folder that `pipeline.run` wrote to.
    split : str or None. Search this split alone, or several with commas between; None: all.
    weights : str or None. Of the image network; None: as the head records.
    monitor : Monitor. Receives lines on what is embedded, on unknown words and on changed datasets.

    Raises
    ------
    NotMade
        The experiment has no head, or features are missing.
    HeadError
        No experiment has this name.
    EmbeddingsError
        The file is damaged.

    Examples
    --------
    >>> searcher = pipeline.open_searcher("vsepp", "data/mine")  # doctest: +SKIP
    >>> [hit.id for hit in searcher.by_sentences("a dog runs")]  # doctest: +SKIP
    ['a.jpg', 'b.jpg']
    """
    layout = Layout(Path(dataset), Path(root))
    find = experiment_finder(experiments)
    file = searched_embeddings(
        experiment, layout, find, split=split, monitor=monitor,
        remedy=f"pipeline.run({experiment!r}, {str(dataset)!r})",
    )  # fmt: skip
    single = not layout.ensemble(experiment).is_file()
    return Searcher(
        file,
        dataset=layout.dataset,
        head=layout.head(experiment) if single else None,
        encoder=layout.encoder(find(unseeded(experiment)).captions.name) if single else None,
        weights=weights,
        split=split,
        monitor=monitor,
    )


def open_region_searcher(
    experiment: str,
    dataset: str | Path,
    *,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path = DATA,
    monitor: Monitor = QUIET,
) -> RegionSearcher:
    """Return what finds the boxes of phrases by an experiment that `pipeline.localize` made.

    Parameters
    ----------
    experiment, dataset, experiments, root, monitor : see `open_searcher`.

    Raises
    ------
    NotMade
        The experiment has no localization file.
    HeadError, LocalizationError
        No experiment has this name, or the file is damaged.
    """
    layout = Layout(Path(dataset), Path(root))
    captions = experiment_finder(experiments)(unseeded(experiment)).captions.name
    remedy = f"pipeline.localize({experiment!r}, {str(dataset)!r}, method=...)"
    return RegionSearcher(
        _made(layout.localization(experiment), remedy),
        dataset=layout.dataset,
        head=layout.head(experiment),
        encoder=layout.encoder(captions),
        monitor=monitor,
    )


def serve(
    experiment: str,
    dataset: str | Path,
    *,
    regions: bool = False,
    captions: str | None = None,
    port: int = 8765,
    top: int = 12,
    experiments: Mapping[str, Experiment] | None = None,
    root: str | Path = DATA,
    split: str | None = None,
    weights: str | None = None,
    monitor: Monitor = QUIET,
) -> None:
    """Serve a page of this machine on which an experiment answers queries, until interrupted.

    Parameters
    ----------
    experiment, dataset, experiments, root, split, weights : see `open_searcher`.
    regions : bool. Find phrases and mark their boxes; see `open_region_searcher`.
    captions : str or None. Name of a language model that describes uploaded images.
    port : int. Port of 127.0.0.1; 0 for any that is free.
    top : int. Hits of a query.
    monitor : Monitor. Receives the page's address once it answers, and refused requests.

    Raises
    ------
    WrongUsage
        `captions` with `regions`.
    NotMade, HeadError, ServeError, LanguageError
        See `open_searcher`; the port is not free, or the language model is missing.
    """
    # Here, since a search needs no server.
    from pipeline.search.serve.server import Server

    if regions and captions:
        raise WrongUsage("captions describe uploaded images, which regions=True does not accept")
    describe = None
    searcher: Searcher | RegionSearcher
    if regions:
        searcher = open_region_searcher(
            experiment, dataset, experiments=experiments, root=root, monitor=monitor
        )
    else:
        searcher = open_searcher(
            experiment, dataset, experiments=experiments, root=root, split=split, weights=weights,
            monitor=monitor,
        )  # fmt: skip
    if captions:
        layout = Layout(Path(dataset), Path(root))
        opened = open_captioner(captions, layout, experiment_finder(experiments))
        describe = partial(describe_picture, opened.captioner, opened.network(), count=3)
    with Server(searcher, port=port, top=top, describe=describe, monitor=monitor) as server:
        monitor.log(server.url)
        server.run()


def _made(file: Path, remedy: str) -> Path:
    if not file.is_file():
        raise NotMade(f"{file} not found; {remedy} makes it")
    return file
