"""What `train` and `embed` share: the options that name an experiment and the features it takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.heads.data.pairs import Pairs
from pipeline.heads.data.rows import float32_bytes, is_in_memory
from stages.console import log_done
from stages.params import DATA, Experiment, Params

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


def inputs_of(
    plan: Experiment,
    params: Params,
    dataset: Path | None,
    images: Path | None,
    captions: Path | None,
) -> tuple[Path, Path, Path]:
    """Return the folders of the dataset, its image features and its caption features.

    What is not given follows from params.yaml and the layout of data/README.md.
    """
    dataset = dataset or DATA / params.dataset
    return (
        dataset,
        images or DATA / "features" / dataset.name / plan.images,
        captions or DATA / "text" / dataset.name / plan.captions,
    )


def log_sizes(split: str, pairs: Pairs) -> None:
    """Say how many rows a split has, how large they are and where they are read from."""
    sides = []
    for name, rows in (("images", pairs.images), ("captions", pairs.captions)):
        where = "in memory" if is_in_memory(rows) else "read as needed"
        size = float32_bytes(rows) / 1e6
        sides.append(f"{len(rows)} {name} {rows.row_shape} {size:.1f} MB {where}")
    log_done(f"{split}: {', '.join(sides)}")
