"""Options shared by all trainings, passed to the command as one object."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

import click

from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.devices import AUTO
from stages.command import COUNT, section
from stages.console import CONSOLE
from stages.experiment import DEVICE

SIZES = click.Choice(["tiny", "small", "paper"])
SEEDS = click.option(
    "--seeds",
    type=COUNT,
    default=1,
    help="Number of trainings, with the seeds from --seed on: NAME, NAME-seed1, ...",
)
_OPTIONS = (
    click.option("--train-split", help="Training split.  [default: as in params.yaml, or train]"),
    click.option(
        "--validation-split",
        help="Validation split, for model selection.  [default: as in params.yaml, or val, dev]",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        help="Seed of all random numbers.  [default: as in params.yaml, or 0]",
    ),
    click.option(
        "--max-epochs",
        type=COUNT,
        help="Maximum number of epochs.  [default: as in params.yaml and the experiment]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(0),
        default=0,
        help="Prefetch processes that load batches; results do not depend on their number.",
    ),
    DEVICE,
    click.option(
        "--precision",
        type=click.Choice(["float32", "bf16", AUTO]),
        help="Precision of the matrix products in training, also of a fine-tuned image network; "
        "auto is bf16 where the device is fast with it, else float32.  [default: that of the "
        "experiment, or float32]",
    ),
)


def training_options(command: Callable[..., None]) -> Any:
    """Add the options, passed as `training` together with --leave-out-failed of the command."""

    names = [field.name for field in fields(TrainingOptions) if field.name != "monitor"]

    @wraps(command)
    def with_training(**options: Any) -> None:
        from stages.params import load_params

        params = load_params()
        training = {name: options.pop(name) for name in names}
        training["train_split"] = training["train_split"] or params.splits.train
        training["validation_split"] = training["validation_split"] or params.splits.validation
        training["max_epochs"] = training["max_epochs"] or params.max_epochs
        if training["seed"] is None:  # 0 is a seed too
            training["seed"] = params.seed
        command(training=TrainingOptions(**training, monitor=CONSOLE), **options)

    return section("Training", *_OPTIONS)(with_training)
