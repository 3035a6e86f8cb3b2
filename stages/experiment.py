"""Options and files of an experiment on a dataset."""

from pathlib import Path

import click

from pipeline.experiments.layout import DATA, Layout, NotMade, unseeded
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import Selection
from stages.command import PATH, add_options
from stages.options import option_of

DATASET = click.option(
    "--dataset", type=PATH, help="Prepared dataset.  [default: as in params.yaml]"
)
REQUIRED_DATASET = click.option("--dataset", required=True, type=PATH, help="Prepared dataset.")
LEAVE_OUT_FAILED = option_of(Selection, "leave_out_failed")

experiment_options = add_options(
    DATASET,
    click.option(
        "--image-features",
        "images",
        type=PATH,
        help="Image features.  [default: data/features/DATASET/RECIPE]",
    ),
    click.option(
        "--caption-features",
        "captions",
        type=PATH,
        help="Caption features.  [default: data/text/DATASET/NAME]",
    ),
    LEAVE_OUT_FAILED,
)
"""Add the options of a dataset with features of both sides."""


def layout_of(dataset: Path | None, default: str) -> Layout:
    """Return the file locations of a dataset, or of the one in data/ that params.yaml names."""
    if dataset is not None:
        return Layout(dataset, DATA)
    if not default:
        raise WrongUsage(
            f"params.yaml not found in {Path.cwd()}, or it names no dataset; pass --dataset DIR, "
            "or run this command in the project's folder"
        )
    return Layout.of(default)


def run_command(name: str, layout: Layout) -> str:
    """Return the command that computes all files of an experiment, for messages."""
    return f"`pipeline run {unseeded(name)} --dataset {layout.dataset}`"


def require_made(path: Path, name: str, layout: Layout) -> None:
    """Raise NotMade, with the command that computes it, unless a file of an experiment exists."""
    if not path.exists():
        raise NotMade(f"{path} not found; {run_command(name, layout)} makes it")
