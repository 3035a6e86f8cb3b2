"""`pipeline evaluate`: an embedding file becomes a recall table."""

import time
from pathlib import Path

import click

from pipeline.canonical import sha256_of_file, write_json
from pipeline.report.tables import markdown_table, write_recall
from pipeline.retrieval.embeddings import read_embeddings
from pipeline.retrieval.recall import recall_table
from stages.console import OUTPUT, log_done, log_settings

PROVENANCE_FILE = "provenance.json"


@click.command()
@click.argument("embeddings", type=click.Path(path_type=Path), metavar="EMBEDDINGS.h5")
@click.option("--out", required=True, type=OUTPUT, help="Folder of the table.")
@click.option(
    "--captions-per-image",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="The first so many captions of an image count; 0 counts all.",
)
def evaluate(embeddings: Path, out: Path, captions_per_image: int) -> None:
    """Rank anybody's embedding file in both directions and write recall.json and recall.csv.

    docs/evaluation.md describes the file and defines each figure.

    \b
    Example:
      pipeline evaluate data/embeddings/qian2018-baseline.h5 --out data/reports/qian2018-baseline
    """
    log_settings(
        "evaluate", embeddings=embeddings, out=out, captions_per_image=captions_per_image or "all"
    )
    started = time.monotonic()
    given = read_embeddings(embeddings)
    table = recall_table(given, captions_per_image or None)
    write_recall(out, table)
    write_json(
        out / PROVENANCE_FILE,
        {
            "embeddings_sha256": sha256_of_file(embeddings),
            "similarity": given.similarity,
            "provenance": given.provenance,
        },
    )
    log_done(
        f"{out}: {table['num_images']} images and {table['num_captions']} captions ranked by "
        f"{given.similarity} in {time.monotonic() - started:.1f} s"
    )
    click.echo(markdown_table({embeddings.stem: table}), nl=False)
