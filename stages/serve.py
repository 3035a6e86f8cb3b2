"""`pipeline serve`: a page on 127.0.0.1 that an experiment can be tried on."""

from pathlib import Path

import click

from pipeline.search.serve.answering import Answering
from pipeline.search.serve.server import ADDRESS, Server
from stages.console import log_done, log_settings
from stages.search import open_searcher, source_options, sources_of


@click.command()
@source_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Where; 0 takes any that is free.",
)
@click.option("--top", type=click.IntRange(1, 200), default=12, show_default=True, help="How many.")
def serve(
    experiment: str,
    embeddings: Path | None,
    head: Path | None,
    dataset: Path | None,
    encoder: Path | None,
    weights: str | None,
    port: int,
    top: int,
) -> None:
    """Serve a page with a box for a sentence, an upload for a picture, and their nearest.

    Only this machine can reach it, and it shows no file but small copies of the dataset's
    pictures. Its address is written to stdout once it answers; Ctrl-C ends it.

    \b
    Example:
      pipeline serve --experiment NAME
    """
    sources = sources_of(experiment, embeddings, head, dataset, encoder, weights)
    log_settings(
        "serve", experiment=experiment, embeddings=sources.embeddings, head=sources.head,
        dataset=sources.dataset, encoder=sources.encoder, address=ADDRESS, port=port, top=top,
    )  # fmt: skip
    answering = Answering(open_searcher(sources, experiment), top, log_done)
    with Server(answering, port, log_done) as server:
        click.echo(server.url)
        try:
            server.run()
        except KeyboardInterrupt:
            log_done("ended")
