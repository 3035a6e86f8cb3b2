"""Command line options shared by all trainings."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.devices import AUTO
from stages.command import section
from stages.console import CONSOLE

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
        type=click.IntRange(1),
        help="Maximum number of epochs.  [default: as in params.yaml and the experiment]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Prefetch processes that load batches; results do not depend on their number.",
    ),
    click.option(
        "--device",
        default="auto",
        show_default=True,
        help="Torch device, such as cpu or cuda:1; auto is the best of this machine.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["float32", "bf16", AUTO]),
        help="Precision of the matrix products in training, also of a fine-tuned image network; "
        "auto is bf16 where the device is fast with it, else float32.  [default: that of the "
        "experiment, or float32]",
    ),
)


def training_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every training, which the command receives as `training`.

    `training` also contains --leave-out-failed, added by `LEAVE_OUT_FAILED` or
    `experiment_options`.
    """

    @wraps(command)
    def with_training(
        *,
        train_split: str | None,
        validation_split: str | None,
        seed: int | None,
        max_epochs: int | None,
        workers: int,
        device: str,
        precision: str | None,
        leave_out_failed: bool,
        **others: Any,
    ) -> None:
        # Here: yaml takes longer to import than --help should.
        from stages.params import load_params

        params = load_params()
        training = TrainingOptions(
            train_split=train_split or params.splits.train,
            validation_split=validation_split or params.splits.validation,
            seed=params.seed if seed is None else seed,
            max_epochs=max_epochs or params.max_epochs,
            workers=workers,
            device=device,
            precision=precision,
            leave_out_failed=leave_out_failed,
            monitor=CONSOLE,
        )
        command(training=training, **others)

    return section("Training", *_OPTIONS)(with_training)
