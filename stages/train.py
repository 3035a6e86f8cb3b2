"""`pipeline train`: fits the head of an experiment on the training split."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.errors import WrongUsage
from stages.command import Command, option
from stages.console import OUTPUT, elapsed, log_chosen, log_done
from stages.experiment import experiment_options, layout_of
from stages.experiment_name import EXPERIMENT
from stages.training import training_options


@click.command(cls=Command)
@option(
    "--experiment",
    "Experiment of params.yaml, a published system, or a YAML file with one experiment.",
    EXPERIMENT,
    required=True,
)
@experiment_options
@training_options
@option("--out", "Output folder of the head.  [default: data/heads/DATASET/EXPERIMENT]", OUTPUT)
@option(
    "--weights",
    "Initial weights of a fine-tuned image network, as in `pipeline extract`.  [default: "
    "those of its features]",
)
def train(
    experiment: str,
    dataset: Path | None,
    images: Path | None,
    captions: Path | None,
    out: Path | None,
    weights: str | None,
    training: TrainingOptions,
) -> None:
    """Fit the head of an experiment on the training split; the validation split selects the epoch.

    A checkpoint after each epoch is kept next to the output until the head is written; the same
    command resumes from it, also with more epochs.

    A fine-tuned experiment, such as vsepp-finetuned, continues training the head of another
    experiment together with its image network, whose weights are saved next to the head.

    \b
    Example:
      pipeline train --experiment wang2016-nonlinear-bidirectional-structure
    """
    from stages.params import load_params
    from stages.plan import experiment_of

    params = load_params()
    plan = experiment_of(params, experiment)
    layout = layout_of(dataset, params.dataset)
    plan = replace(plan, word_vectors=layout.named_vectors(plan.word_vectors))
    out = out or layout.head(experiment)
    log_chosen(
        head=plan.head,
        settings=plan.settings or None,
        word_vectors=plan.word_vectors,
        average_captions=plan.average_captions or None,
        finetuning=plan.finetuning,
    )
    options: dict[str, Any] = {
        "experiment": plan,
        "images": images or layout.features(plan.images),
        "captions": captions or layout.text(plan.captions.name),
        "training": training,
    }
    if plan.finetuning is None:
        from pipeline.heads.fit import fit

        if weights is not None:
            raise WrongUsage(
                f"--weights requires an image network that is fine-tuned, but {experiment} trains "
                "on stored features; omit it"
            )
        trained = fit(layout.dataset, out, **options)
    else:
        from pipeline.heads.finetuning.finetune import finetune

        start = layout.head(plan.finetuning.start)
        trained = finetune(layout.dataset, out, start=start, weights=weights, **options)
    figures = ", ".join(f"{k} {v:g}" for k, v in trained.chosen.items() if k != "best")
    log_done(f"{out}: {figures}; {elapsed():.1f} s")
