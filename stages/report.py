"""`pipeline report`: the recall tables of all experiments in one, and a report as HTML."""

from pathlib import Path

import click

from pipeline.errors import WrongUsage
from pipeline.experiments.layout import Layout, NotMade
from stages.command import Command
from stages.console import CONSOLE, OUTPUT
from stages.experiment import layout_of


@click.command(cls=Command)
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    help="Its experiments are reported.  [default: that of params.yaml]",
)
@click.option("--out", type=OUTPUT, help="Folder of the tables.  [default: data/report/DATASET]")
@click.option(
    "--html",
    type=OUTPUT,
    metavar="DIR",
    help="Write a report there, too: tables beside the published numbers, figures, queries with "
    "their results. DIR/index.html opens in any browser, offline.",
)
@click.option(
    "--regions",
    is_flag=True,
    help="Of phrase localization instead: DIR/localization.html, with a table of all files of "
    "`pipeline localize` and photos with boxes.",
)
@click.option(
    "--captions",
    is_flag=True,
    help="Of generated captions instead: DIR/captions.html, with the scores of all files of "
    "`pipeline caption`, images with their captions, and the regularities of spaces.",
)
def report(
    dataset: Path | None, out: Path | None, html: Path | None, regions: bool, captions: bool
) -> None:
    """Join the recall tables of all experiments as recall.json, recall.csv and recall.md.

    They are read from data/evaluations/DATASET. The experiments of params.yaml come first, in its
    order; others follow by name. docs/report.md describes the report that --html writes.

    \b
    Examples:
      pipeline report
      pipeline report --html data/report/scenes/html
      pipeline report --regions --dataset data/entities --html data/report/entities/html
      pipeline report --captions --dataset data/flickr8k --html data/report/flickr8k/html
    """
    # Here, as the job below: what they import takes longer than --help should.
    from stages.params import load_params

    params = load_params()
    layout, first = layout_of(dataset, params.dataset), list(params.experiments)
    if regions:
        _report_regions(layout, html)
        return
    if captions:
        _report_captions(layout, html)
        return
    if not layout.evaluations.is_dir():
        raise NotMade(
            f"{layout.evaluations} not found: no experiment has been measured on {layout.dataset} "
            f"yet; `pipeline run NAME --dataset {layout.dataset}` measures one, such as those in "
            "docs/heads.md"
        )
    out = out or layout.report
    from pipeline.report.results import Folders
    from pipeline.report.write import write_report
    from pipeline.retrieval.tables import markdown_table

    folders = Folders(
        layout.evaluations, layout.embedding_folders, layout.heads, layout.dataset, layout.texts
    )
    written = write_report(folders, out, html=html, first=first, monitor=CONSOLE)
    click.echo(markdown_table(written.rows), nl=False)


def _report_regions(layout: Layout, html: Path | None) -> None:
    """Write the page of all localization files of a dataset."""
    from pipeline.report.localizations import write_localization_page

    if html is None:
        raise WrongUsage("--regions writes a page only; give --html DIR")
    files = sorted(layout.localizations.glob("*.h5"))
    write_localization_page(files, layout.dataset, html, monitor=CONSOLE)


def _report_captions(layout: Layout, html: Path | None) -> None:
    """Write the page of all captions of a dataset."""
    from pipeline.datasets.manifest import read_manifest
    from pipeline.experiments.known_truth import caption_truth_of
    from pipeline.report.caption_report import write_captions_page

    if html is None:
        raise WrongUsage("--captions writes a page only; give --html DIR")
    files = sorted(layout.captions("x").parent.glob("*.jsonl"))
    spaces = sorted(layout.regularities("x").parent.glob("*.json"))
    write_captions_page(
        files,
        layout.caption_scores("x").parent,
        layout.dataset,
        html,
        truth=caption_truth_of(read_manifest(layout.dataset)),
        regularities=spaces,
        monitor=CONSOLE,
    )
