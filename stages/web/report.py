"""`pipeline report`: joint recall tables of all experiments, and HTML pages."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.store.errors import WrongUsage
from stages.command import Command, option
from stages.console import CONSOLE, OUTPUT
from stages.experiment import DATASET, project_of
from stages.options import MAP

if TYPE_CHECKING:
    from pipeline.studies.embedding_map.plane import Projection


@click.command(cls=Command)
@DATASET
@option("--out", "Output folder of the tables.  [default: data/report/DATASET]", OUTPUT)
@option(
    "--html",
    "Also write a report to this folder: tables next to published numbers, figures, queries "
    "with their results. DIR/index.html opens offline in any browser.",
    OUTPUT,
    metavar="DIR",
)
@MAP
@option(
    "--task",
    "Page to write instead: localization, DIR/localization.html, with a table of all files "
    "of `pipeline localize` and images with boxes; captioning, DIR/captions.html, with the scores "
    "of all files of `pipeline caption`, images with captions, and the regularities of spaces.",
    click.Choice(["retrieval", "localization", "captioning"]),
    default="retrieval",
)
def report(
    dataset: Path | None, out: Path | None, html: Path | None, projection: "Projection", task: str
) -> None:
    """Join the recall tables of all experiments as recall.json, recall.csv and recall.md.

    Tables are read from data/evaluations/DATASET. The experiments of params.yaml are first, in its
    order; others follow by name. docs/evaluation.md describes the pages that --html writes.

    \b
    Examples:
      pipeline report
      pipeline report --html data/report/scenes/html
      pipeline report --task localization --dataset data/entities --html data/report/entities/html
      pipeline report --task captioning --dataset data/flickr8k --html data/report/flickr8k/html
    """
    from pipeline.retrieval.tables import markdown_table
    from pipeline.web.report import report_by_name as reports

    params, layout = project_of(dataset)
    if task != "retrieval":
        if html is None:
            raise WrongUsage(f"--task {task} only writes a page; pass --html DIR")
        write_page = (
            reports.write_region_report if task == "localization" else reports.write_caption_report
        )
        write_page(layout.dataset, html, root=layout.root, monitor=CONSOLE)
        return
    written = reports.write_report(
        layout.dataset, out, html=html, projection=projection, first=list(params.experiments),
        root=layout.root, monitor=CONSOLE,
    )  # fmt: skip
    click.echo(markdown_table(written.rows), nl=False)
