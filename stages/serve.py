"""`pipeline serve`: a page on 127.0.0.1 that an experiment can be tried on."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.errors import WrongUsage
from stages.command import Command
from stages.console import CONSOLE, log_done
from stages.experiment import layout_of
from stages.options import MAP
from stages.sources import region_sources_of, source_options, sources_of

if TYPE_CHECKING:
    from pipeline.embedding_map.plane import Projection
    from pipeline.search.serve.service import Describe

_CAPTIONS = 3


@click.command(cls=Command)
@source_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Where; 0 takes any that is free.",
)
@click.option("--regions", is_flag=True, help="Ask for phrases, and mark where they are.")
@click.option(
    "--captions",
    metavar="EXPERIMENT",
    help="Describe uploaded pictures, too, by this language model.",
)
@click.option("--top", type=click.IntRange(1, 200), default=12, show_default=True, help="How many.")
@MAP
def serve(
    experiment: str | None,
    port: int,
    regions: bool,
    captions: str | None,
    top: int,
    projection: "Projection",
    **files: Any,
) -> None:
    """Serve a page with a box for a sentence, an upload for a picture, and their nearest.

    Only this machine can reach it, and it shows no file but small copies of the dataset's
    pictures. Its address is written to stdout once it answers; Ctrl-C ends it.

    \b
    Example:
      pipeline serve --experiment NAME
      pipeline serve --experiment kiros2014-lstm --captions kiros2014-sc-nlm
    """
    if experiment is None:
        raise click.UsageError("Missing option '--experiment'.")
    if regions and captions:
        raise WrongUsage("--captions describes uploaded pictures, which --regions does not take")
    sources = (region_sources_of if regions else sources_of)(experiment, **files)
    # Here: these import torch, which takes seconds, and the server.
    from pipeline.search.region_searcher import RegionSearcher
    from pipeline.search.searcher import Searcher
    from pipeline.search.serve.server import Server

    kind = RegionSearcher if regions else Searcher
    searcher = kind(**sources, monitor=CONSOLE)
    describe = _describe(captions, sources["dataset"]) if captions else None
    with Server(
        searcher, port=port, top=top, describe=describe, projection=projection, monitor=CONSOLE
    ) as server:
        click.echo(server.url)
        try:
            server.run()
        except KeyboardInterrupt:
            log_done("ended")


def _describe(experiment: str, dataset: Path) -> "Describe":
    """Return what describes pictures by a trained language model."""
    from pipeline.search.picture_captions import describe_picture
    from stages.caption import open_by_name
    from stages.params import load_params

    opened = open_by_name(experiment, layout_of(dataset, ""), load_params())
    return partial(describe_picture, opened.captioner, opened.network(), count=_CAPTIONS)
