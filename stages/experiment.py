"""Options for a dataset and its features, shared by `train` and `embed`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.experiments.layout import DATA, Layout, NotMade, unseeded
from pipeline.store.errors import WrongUsage

Command = TypeVar("Command", bound=Callable[..., Any])

LEAVE_OUT_FAILED = click.option(
    "--leave-out-failed", is_flag=True, help="Skip images whose features failed."
)


def experiment_options(command: Command) -> Command:
    """Add --dataset, --image-features, --caption-features and --leave-out-failed."""
    for option in (
        LEAVE_OUT_FAILED,
        click.option(
            "--caption-features",
            "captions",
            type=click.Path(path_type=Path),
            help="Caption features.  [default: data/text/DATASET/NAME]",
        ),
        click.option(
            "--image-features",
            "images",
            type=click.Path(path_type=Path),
            help="Image features.  [default: data/features/DATASET/RECIPE]",
        ),
        click.option(
            "--dataset",
            type=click.Path(path_type=Path),
            help="Prepared dataset.  [default: as in params.yaml]",
        ),
    ):
        command = option(command)
    return command


def layout_of(dataset: Path | None, default: str) -> Layout:
    """Return the paths of the files of a dataset.

    Parameters
    ----------
    dataset : Path or None. Folder of the dataset; None: the one in data/ with the default name.
    default : str. Name of the dataset of params.yaml; "" without one.

    Raises
    ------
    WrongUsage
        Neither names a dataset.
    """
    if dataset is not None:
        return Layout(dataset, DATA)
    if not default:
        raise WrongUsage(
            f"params.yaml not found in {Path.cwd()}, or it names no dataset; pass --dataset DIR, "
            "or run this command in the project's folder"
        )
    return Layout.of(default)


def made_by_run(name: str, layout: Layout) -> str:
    """Return the command that computes all files of an experiment, for messages."""
    return f"`pipeline run {unseeded(name)} --dataset {layout.dataset}`"


def require_made(path: Path, name: str, layout: Layout) -> None:
    """Raise unless a file or folder of an experiment exists.

    Raises
    ------
    NotMade
        The message names the command that computes it.
    """
    if not path.exists():
        raise NotMade(f"{path} not found; {made_by_run(name, layout)} makes it")
