"""`pipeline train`: an experiment's head is fitted on the training split."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pipeline.errors import WrongUsage
from stages.console import CONSOLE, OUTPUT, log_done, log_settings
from stages.experiment import experiment_options, layout_of


@click.command()
@click.option("--experiment", required=True, help="Name of an experiment in params.yaml.")
@experiment_options
@click.option("--train-split", help="[default: that of params.yaml, or train]")
@click.option("--validation-split", help="[default: that of params.yaml, or val, dev]")
@click.option("--seed", type=click.IntRange(0), help="[default: that of params.yaml]")
@click.option(
    "--max-epochs",
    type=click.IntRange(1),
    help="Train no longer than this, whatever the experiment says.  [default: that of params.yaml]",
)
@click.option(
    "--out", type=OUTPUT, help="Folder of the head.  [default: data/heads/DATASET/EXPERIMENT]"
)
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Processes that read batches ahead; the head does not depend on their number.",
)
@click.option(
    "--weights",
    help="Of the image network that is fine-tuned, as `pipeline extract` takes them.  [default: "
    "those that its features name]",
)
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
def train(
    experiment: str,
    dataset: Path | None,
    images: Path | None,
    captions: Path | None,
    train_split: str | None,
    validation_split: str | None,
    seed: int | None,
    max_epochs: int | None,
    out: Path | None,
    workers: int,
    weights: str | None,
    device: str,
    leave_out_failed: bool,
) -> None:
    """Fit an experiment's head on the training split; the validation split chooses the epoch.

    The state after each epoch is kept beside the output until the head is written: the same
    command goes on from there. The number of epochs may be raised in between.

    A fine-tuned experiment, such as vsepp-finetuned, trains the head of another one further,
    together with the network of its image features, whose weights are written beside the head.

    \b
    Example:
      pipeline train --experiment wang2016-nonlinear-bidirectional-structure
    """
    # Here, as the job below: what they import takes longer than --help should.
    from stages.params import load_params
    from stages.plan import experiment_of

    params = load_params()
    plan = experiment_of(params, experiment)
    layout = layout_of(dataset, params.dataset)
    plan = replace(plan, word_vectors=layout.named_vectors(plan.word_vectors))
    train_split = train_split or params.splits.train
    validation_split = validation_split or params.splits.validation
    seed = params.seed if seed is None else seed
    max_epochs = max_epochs or params.max_epochs
    out = out or layout.head(experiment)
    log_settings(
        "train",
        experiment=experiment,
        head=plan.head,
        settings=plan.settings,
        dataset=layout.dataset,
        train=train_split,
        validation=validation_split,
        word_vectors=plan.word_vectors,
        average_captions=plan.average_captions,
        finetuning=plan.finetuning,
        seed=seed,
        max_epochs=max_epochs,
        workers=workers,
        device=device,
        out=out,
    )
    started = time.monotonic()
    options: dict[str, Any] = {
        "experiment": plan,
        "images": images or layout.features(plan.images),
        "captions": captions or layout.text(plan.captions.name),
        "train_split": train_split,
        "validation_split": validation_split,
        "seed": seed,
        "max_epochs": max_epochs,
        "workers": workers,
        "device": device,
        "leave_out_failed": leave_out_failed,
        "monitor": CONSOLE,
    }
    if plan.finetuning is None:
        from pipeline.heads.fit import fit

        if weights is not None:
            raise WrongUsage(
                f"--weights are of an image network that is fine-tuned, and {experiment} trains on "
                "stored features; leave it out"
            )
        trained = fit(layout.dataset, out, **options)
    else:
        from pipeline.finetuning.finetune import finetune

        start = layout.head(plan.finetuning.start)
        trained = finetune(layout.dataset, out, start=start, weights=weights, **options)
    figures = ", ".join(f"{k} {v:g}" for k, v in trained.chosen.items() if k != "best")
    log_done(f"{out}: {figures}; {time.monotonic() - started:.1f} s")
