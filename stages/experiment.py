"""Options and files of an experiment on a dataset."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.experiments.layout import DATA, Layout, NotMade, unseeded
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import Selection
from stages.command import FEATURES, PATH, add_options, option
from stages.experiment_name import given_files
from stages.options import option_of

if TYPE_CHECKING:
    from stages.params import Params


ROOT = option(
    "--data",
    "Folder of all outputs.  [default: the folder data that contains the dataset, else ./data]",
    PATH,
    metavar="ROOT",
    expose_value=False,
    callback=lambda ctx, _, root: ctx.meta.update({__name__: root}),
)
DATASET = add_options(
    option("--dataset", "Prepared dataset.  [default: as in params.yaml]", PATH), ROOT
)
"""Add the dataset, and the root of its outputs, which `layout_of` reads."""
REQUIRED_DATASET = option("--dataset", "Prepared dataset.", PATH, required=True)
LEAVE_OUT_FAILED = option_of(Selection, "leave_out_failed")

experiment_options = add_options(
    DATASET,
    option(
        "--image-features",
        "Image features.  [default: data/features/DATASET/RECIPE]",
        FEATURES,
        name="images",
    ),
    option(
        "--caption-features",
        "Caption features.  [default: data/text/DATASET/NAME]",
        FEATURES,
        name="captions",
    ),
    LEAVE_OUT_FAILED,
)
"""Add the options of a dataset with features of both sides."""


def layout_of(dataset: Path | None, default: str) -> Layout:
    """Return the file locations of a dataset, or of the one in data/ that params.yaml names."""
    ctx = click.get_current_context(silent=True)
    root: Path | None = None if ctx is None else ctx.meta.get(__name__)
    if dataset is not None:
        return Layout(dataset, root)
    if not default:
        raise WrongUsage(
            f"params.yaml not found in {Path.cwd()}, or it names no dataset; pass --dataset DIR, "
            "or run this command in the project's folder"
        )
    return Layout.of(default, root or DATA)


def project_of(dataset: Path | None) -> "tuple[Params, Layout]":
    """Return params.yaml of this folder, and the file locations of its dataset or a given one."""
    from stages.params import load_params

    params = load_params()
    return params, layout_of(dataset, params.dataset)


def run_command(name: str, layout: Layout) -> str:
    """Return the command that computes all files of an experiment, for messages."""
    base, *recipe = unseeded(name).split("@", 1)
    named = "@".join([str(given_files().get(base, base)), *recipe])
    data = "" if layout == Layout(layout.dataset) else f" --data {layout.root}"
    return f"`pipeline run {named} --dataset {layout.dataset}{data}`"


def require_made(path: Path, name: str, layout: Layout) -> None:
    """Raise NotMade, with the command that computes it, unless a file of an experiment exists."""
    if not path.exists():
        raise NotMade(f"{path} not found; {run_command(name, layout)} computes it")
