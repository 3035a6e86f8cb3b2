"""`pipeline serve`: a page on 127.0.0.1 that an experiment can be tried on."""

from typing import Any

import click

from stages.console import CONSOLE, log_done, log_settings
from stages.sources import region_sources_of, source_options, sources_of


@click.command()
@source_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Where; 0 takes any that is free.",
)
@click.option("--regions", is_flag=True, help="Ask for phrases, and mark where they are.")
@click.option("--top", type=click.IntRange(1, 200), default=12, show_default=True, help="How many.")
def serve(experiment: str, port: int, regions: bool, top: int, **files: Any) -> None:
    """Serve a page with a box for a sentence, an upload for a picture, and their nearest.

    Only this machine can reach it, and it shows no file but small copies of the dataset's
    pictures. Its address is written to stdout once it answers; Ctrl-C ends it.

    \b
    Example:
      pipeline serve --experiment NAME
    """
    sources = (region_sources_of if regions else sources_of)(experiment, **files)
    log_settings("serve", experiment=experiment, **sources, address="127.0.0.1", port=port, top=top)
    # Here: these import torch, which takes seconds, and the server.
    from pipeline.search.region_searcher import RegionSearcher
    from pipeline.search.searcher import Searcher
    from pipeline.search.serve.server import Server

    kind = RegionSearcher if regions else Searcher
    searcher = kind(**sources, monitor=CONSOLE)
    with Server(searcher, port=port, top=top, monitor=CONSOLE) as server:
        click.echo(server.url)
        try:
            server.run()
        except KeyboardInterrupt:
            log_done("ended")
