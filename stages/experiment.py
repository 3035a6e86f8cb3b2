"""What `train` and `embed` share: the options that name a dataset and the features to take."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.errors import WrongUsage
from pipeline.experiments.layout import DATA, Layout, NotMade, unseeded

Command = TypeVar("Command", bound=Callable[..., Any])

LEAVE_OUT_FAILED = click.option(
    "--leave-out-failed", is_flag=True, help="Go on without images that failed."
)


def experiment_options(command: Command) -> Command:
    """Add --dataset, --images, --captions and --leave-out-failed."""
    for option in (
        LEAVE_OUT_FAILED,
        click.option(
            "--captions",
            type=click.Path(path_type=Path),
            help="Caption features.  [default: data/text/DATASET/NAME]",
        ),
        click.option(
            "--images",
            type=click.Path(path_type=Path),
            help="Image features.  [default: data/features/DATASET/RECIPE]",
        ),
        click.option(
            "--dataset", type=click.Path(path_type=Path), help="[default: that of params.yaml]"
        ),
    ):
        command = option(command)
    return command


def layout_of(dataset: Path | None, default: str) -> Layout:
    """Return where the files of a dataset lie.

    Parameters
    ----------
    dataset : its folder; None: the one in data/ with the default name.
    default : the dataset of params.yaml; "" without one.

    Raises
    ------
    WrongUsage
        Neither names a dataset.
    """
    if dataset is not None:
        return Layout(dataset, DATA)
    if not default:
        raise WrongUsage(
            f"params.yaml not found in {Path.cwd()}, or it names no dataset; give --dataset DIR, "
            "or run this command in the project's folder"
        )
    return Layout.of(default)


def made_by_run(name: str, layout: Layout) -> str:
    """Return the command that makes all files of an experiment, for messages."""
    return f"`pipeline run {unseeded(name)} --dataset {layout.dataset}`"


def require_made(path: Path, name: str, layout: Layout) -> None:
    """Check that a file or folder of an experiment exists.

    Raises
    ------
    NotMade
        The command that makes it is named.
    """
    if not path.exists():
        raise NotMade(f"{path} not found; {made_by_run(name, layout)} makes it")
