"""`pipeline serve`: a web page for searching with an experiment, on 127.0.0.1 by default."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.store.errors import WrongUsage
from pipeline.store.extras import require_extra
from stages.command import Command, flag, option
from stages.console import CONSOLE, log_done
from stages.experiment import layout_of
from stages.options import MAP
from stages.searching import source_options, sources_of

if TYPE_CHECKING:
    from pipeline.studies.embedding_map.plane import Projection
    from pipeline.web.serve.service import Describe

_CAPTIONS = 3


@click.command(cls=Command)
@source_options
@option("--port", "Port; 0 for any free port.", click.IntRange(0, 65535), default=8765)
@option(
    "--host",
    "Address to listen on; 0.0.0.0 serves every network, without a password.",
    default="127.0.0.1",
)
@flag("--localize", "Find phrases, with their boxes drawn over the images.")
@option("--language-model", "Language model that captions uploaded images.", metavar="EXPERIMENT")
@option("--top", "Number of results per page.", click.IntRange(1, 200), default=12)
@MAP
def serve(
    experiment: str | None,
    port: int,
    host: str,
    localize: bool,
    language_model: str | None,
    top: int,
    projection: "Projection",
    **files: Any,
) -> None:
    """Serve a web page that searches by sentence and by image.

    Only this machine can reach the page unless --host is set; the only files it shows are
    thumbnails of the dataset's images. The address is printed to stdout once the server is ready;
    Ctrl-C stops it.

    \b
    Examples:
      pipeline serve --experiment NAME
      pipeline serve --experiment kiros2014-lstm --language-model kiros2014-sc-nlm
    """
    if experiment is None:
        raise click.UsageError("Missing option '--experiment'.")
    if localize and language_model:
        raise WrongUsage("--language-model captions uploads, which --localize does not accept")
    require_extra("web", "`pipeline serve` needs")
    from pipeline.web.serve.server import Server

    searcher: Any
    if localize:
        from pipeline.regions.localization.region_searcher import RegionSearcher
        from stages.regions.search_regions import region_sources_of

        sources = region_sources_of(experiment, **files)
        searcher = RegionSearcher(**sources, monitor=CONSOLE)
    else:
        from pipeline.retrieval.query.searcher import Searcher

        sources = sources_of(experiment, **files)
        searcher = Searcher(**sources, monitor=CONSOLE)
    describe = _describe(language_model, sources["dataset"]) if language_model else None
    with Server(
        searcher, host=host, port=port, top=top, describe=describe, projection=projection,
        monitor=CONSOLE,
    ) as server:  # fmt: skip
        click.echo(server.url)
        try:
            server.run()
        except KeyboardInterrupt:
            log_done("stopped")


def _describe(experiment: str, dataset: Path) -> "Describe":
    """Return a function that captions images with a trained language model."""
    from pipeline.language.captioning.describe import describe_picture
    from stages.language.caption import open_by_name
    from stages.params import load_params

    opened = open_by_name(experiment, layout_of(dataset, ""), load_params())
    return partial(describe_picture, opened.captioner, opened.network(), count=_CAPTIONS)
