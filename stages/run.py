"""`pipeline run`: whatever is missing between a dataset and the recall tables of experiments."""

import time
from pathlib import Path
from typing import Literal

import click

from pipeline.experiments.layout import Layout
from pipeline.heads.training.training_options import TrainingOptions
from stages.console import CONSOLE, log_done, log_settings
from stages.experiment import LEAVE_OUT_FAILED, layout_of
from stages.training import training_options


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...|all")
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    help="Prepared dataset.  [default: that of params.yaml]",
)
@click.option(
    "--size",
    type=click.Choice(["tiny", "small", "paper"]),
    help="Of the experiments' networks and trainings.  [default: that of params.yaml for its own "
    "dataset, or small]",
)
@training_options
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of trainings, with the seeds from --seed on: NAME, NAME-seed1, ...",
)
@LEAVE_OUT_FAILED
@click.option("--dry-run", is_flag=True, help="Say what would be done, with sizes, and do nothing.")
def run(
    names: tuple[str, ...],
    dataset: Path | None,
    size: Literal["tiny", "small", "paper"] | None,
    seeds: int,
    dry_run: bool,
    training: TrainingOptions,
) -> None:
    """Make what is missing or out of date for some experiments, from features to recall tables.

    Names are experiments and ensembles of params.yaml, or published systems (docs/heads.md lists
    them), which need no params.yaml; `all` are all of both. Everything is made in one process,
    with the files and bytes of the single commands. The same command again goes on where it
    stopped.

    \b
    Examples:
      pipeline run wang2016-cca ours --dataset data/mine
      pipeline run all --dataset data/flickr8k --dry-run
    """
    # Here, as the job below: what they import takes longer than --help should.
    from stages.params import load_params

    params = load_params()
    layout = layout_of(dataset, params.dataset)
    of_file = params.dataset != "" and layout.name == Layout.of(params.dataset).name
    size = size or (params.size if of_file else "small")
    log_settings(
        "run", experiments=",".join(names), dataset=layout.dataset, size=size,
        seed=training.seed, seeds=seeds if seeds > 1 else None, max_epochs=training.max_epochs,
        leave_out_failed=training.leave_out_failed or None,
    )  # fmt: skip
    from pipeline.experiments.run import run as run_experiments
    from pipeline.retrieval.tables import markdown_table
    from stages.plan import every_name, run_options

    started = time.monotonic()
    result = run_experiments(
        every_name(params) if names == ("all",) else names,
        layout.dataset,
        seeds=seeds,
        training=training,
        dry_run=dry_run,
        monitor=CONSOLE,
        **run_options(params, size),
    )
    log_done(
        f"{'to be made' if dry_run else 'made'}: {', '.join(result.made) or 'nothing'}; "
        f"{time.monotonic() - started:.1f} s"
    )
    for name, perplexity in result.perplexities.items():
        click.echo(f"{name}: perplexity {perplexity:.2f} on the validation split")
    if result.tables:
        click.echo(markdown_table(result.tables), nl=False)
