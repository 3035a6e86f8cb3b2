"""The search page of an experiment by name, from the files of `pipeline.run`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.experiments.layout import Layout
from pipeline.experiments.searchers import open_searcher
from pipeline.heads.experiments import experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.store.errors import WrongUsage
from pipeline.store.extras import require_extra
from pipeline.store.progress import QUIET, Monitor
from pipeline.studies.embedding_map.plane import Projection


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
    root: str | Path | None = None,
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
    host : str. Address to listen on; an address that is not local logs a warning.
    port : int. 0 for any free port.
    top : int. Number of hits per page.
    projection : str. Projection of the map: "pca" or the slower "tsne".
    monitor : Monitor. Receives the address once the server is ready, and rejected requests.

    Raises
    ------
    WrongUsage
        `language_model` with `localize`.
    MissingPackage
        The extra `web` is not installed.
    NotMade, HeadError, OutputError, LanguageError
        See `open_searcher`; the port is not free, or the language model is missing.

    Examples
    --------
    >>> pipeline.serve("vsepp", "data/mine", port=8000)  # doctest: +SKIP
    """
    if localize and language_model:
        raise WrongUsage("`language_model=...` captions uploads, which `localize=True` rejects")
    require_extra("web", "pipeline.serve() needs")
    from pipeline.web.serve.server import Server

    describe = None
    searcher: Any
    if localize:
        # Here, as below: regions and language models are optional families.
        from pipeline.regions.localization.search_by_name import open_region_searcher

        searcher = open_region_searcher(
            experiment, dataset, experiments=experiments, root=root, monitor=monitor
        )
    else:
        searcher = open_searcher(
            experiment, dataset, experiments=experiments, root=root, split=split, weights=weights,
            monitor=monitor,
        )  # fmt: skip
    if language_model:
        from pipeline.language.captioning.captioners import open_captioner
        from pipeline.language.captioning.describe import describe_picture

        layout = Layout(dataset, root)
        opened = open_captioner(language_model, layout, experiment_finder(experiments))
        describe = partial(describe_picture, opened.captioner, opened.network(), count=3)
    with Server(
        searcher, host=host, port=port, top=top, describe=describe, projection=projection,
        monitor=monitor,
    ) as server:  # fmt: skip
        monitor.log(server.url)
        server.run()
