"""Options shared by all trainings, passed to the command as one object."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

import click

from pipeline.heads.training.training_options import TrainingOptions
from stages.command import COUNT, option, section
from stages.console import CONSOLE
from stages.options import option_of

SIZES = click.Choice(["tiny", "small", "paper"])
SEEDS = option(
    "--seeds",
    "Number of trainings, with consecutive seeds from --seed: NAME, NAME-seed1, ...",
    COUNT,
    default=1,
)
_NAMES = [f.name for f in fields(TrainingOptions) if f.name not in ("leave_out_failed", "monitor")]


def training_options(command: Callable[..., None]) -> Any:
    """Add the options, passed as `training` together with --leave-out-failed of the command."""

    @wraps(command)
    def with_training(**options: Any) -> None:
        from stages.params import load_params

        params = load_params()
        training = {name: options.pop(name) for name in (*_NAMES, "leave_out_failed")}
        training["train_split"] = training["train_split"] or params.splits.train
        training["validation_split"] = training["validation_split"] or params.splits.validation
        training["max_epochs"] = training["max_epochs"] or params.max_epochs
        if training["seed"] is None:  # 0 is a seed too
            training["seed"] = params.seed
        command(training=TrainingOptions(**training, monitor=CONSOLE), **options)

    options = (option_of(TrainingOptions, name) for name in _NAMES)
    return section("Training", *options)(with_training)
