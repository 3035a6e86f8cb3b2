"""What `train` and `embed` share: the options that name an experiment and the features it takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.experiments.layout import DATA, Layout
from stages.params import Params

Command = TypeVar("Command", bound=Callable[..., Any])


def experiment_options(command: Command) -> Command:
    """Add --experiment, --dataset, --images, --captions and --leave-out-failed."""
    for option in (
        click.option("--leave-out-failed", is_flag=True, help="Go on without images that failed."),
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
        click.option("--experiment", required=True, help="Name of an experiment in params.yaml."),
    ):
        command = option(command)
    return command


def layout_of(params: Params, dataset: Path | None) -> Layout:
    """Return where the files of a dataset lie; None: the dataset that params.yaml names."""
    return Layout.of(params.dataset) if dataset is None else Layout(dataset, DATA)
