"""`pipeline report`: the recall tables of all experiments in one, and a report as HTML."""

from functools import partial
from pathlib import Path

import click

from pipeline.report.data.provenance import columns_of
from pipeline.retrieval.tables import (
    PROVENANCE_FILE,
    RECALL_FILE,
    TableError,
    markdown_table,
    read_provenance,
    read_recall,
    write_joint_table,
)
from stages.console import OUTPUT, log_done, log_settings, progress_of
from stages.params import DATA, PARAMS_FILE, load_params

_folder = partial(click.option, type=click.Path(path_type=Path), show_default=True)


@click.command()
@_folder(
    "--reports",
    default=DATA / "reports",
    help="Folder with a folder an experiment, each with a recall.json.",
)
@click.option(
    "--html",
    type=OUTPUT,
    metavar="DIR",
    help="Write a report there, too: tables beside the published numbers, figures, queries with "
    "their results. DIR/index.html opens in any browser, offline.",
)
@_folder("--embeddings", default=DATA / "embeddings", help="Folder of embedding files, for --html.")
@_folder(
    "--heads",
    default=DATA / "heads",
    help="Folder with a folder an experiment, each with a trained head, for --html.",
)
@_folder("--datasets", default=DATA, help="Folder of the datasets by their names, for --html.")
@_folder(
    "--text",
    default=DATA / "text",
    help="Folder with a folder a dataset, each with caption features and their encoders, for "
    "--html.",
)
def report(
    reports: Path, html: Path | None, embeddings: Path, heads: Path, datasets: Path, text: Path
) -> None:
    """Join the recall tables of all experiments as recall.json, recall.csv and recall.md.

    The experiments of params.yaml come first, in its order; others follow by name.
    docs/report.md describes the report that --html writes.

    \b
    Examples:
      pipeline report
      pipeline report --html data/reports/html
    """
    used = {"embeddings": embeddings, "heads": heads, "datasets": datasets, "text": text}
    log_settings("report", reports=reports, html=html, **(used if html else {}))
    # Only `pipeline evaluate` writes a provenance; a joint table further down has none.
    found = sorted(path.parent.name for path in reports.glob(f"*/{PROVENANCE_FILE}"))
    if not found:
        raise TableError(
            f"{reports} holds no EXPERIMENT/{PROVENANCE_FILE}; run `pipeline evaluate ... --out "
            f"{reports}/EXPERIMENT` first"
        )
    known = list(load_params().experiments) if PARAMS_FILE.is_file() else []
    names = [name for name in known if name in found]
    names += [name for name in found if name not in known]
    rows = {name: {**columns_of(read_provenance(reports / name / PROVENANCE_FILE)),
                   **read_recall(reports / name / RECALL_FILE)}
            for name in names}  # fmt: skip
    paths = write_joint_table(reports, rows)
    log_done(f"{len(rows)} experiments in {', '.join(map(str, paths))}")
    if html is not None:
        # Heads are asked what words are to them, which takes torch; the tables alone do not.
        from pipeline.report.data.results import Folders
        from pipeline.report.pages.html import write_html

        with progress_of("report", "experiment") as show:
            gaps = write_html(
                html, names, Folders(reports, embeddings, heads, datasets, text),
                lambda done: show(done, len(names), 0),
            )  # fmt: skip
        log_done(f"{html / 'index.html'}: {len(names)} experiments, {len(gaps)} things left out")
    click.echo(markdown_table(rows), nl=False)
