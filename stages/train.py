"""`pipeline train`: an experiment's head is fitted on the training split."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import click

from pipeline.datasets.manifest import read_manifest
from pipeline.devices import usable_device
from pipeline.files import created_by, require_folder
from pipeline.heads.base import Head, History, Run
from pipeline.heads.catalogue import make_head, with_epochs_at_most
from pipeline.heads.data.feature_spec import Inputs
from pipeline.heads.data.pairs import Pairs, join_pairs, with_features
from pipeline.heads.data.word_vectors import known_words
from pipeline.heads.trained_head import TrainedHead
from pipeline.shards.build.feature_build import WORK_FOLDER
from pipeline.shards.build.locking import only_writer
from pipeline.shards.feature_set import FeatureSet
from stages.console import FAILED, OUTPUT, log_done, log_settings, progress_of
from stages.experiment import experiment_options, inputs_of, log_sizes
from stages.params import DATA, load_params


@click.command()
@experiment_options
@click.option("--train-split", help="[default: that of params.yaml]")
@click.option("--validation-split", help="[default: that of params.yaml]")
@click.option("--seed", type=click.IntRange(0), help="[default: that of params.yaml]")
@click.option(
    "--max-epochs",
    type=click.IntRange(1),
    help="Train no longer than this, whatever the experiment says.  [default: that of params.yaml]",
)
@click.option("--out", type=OUTPUT, help="Folder of the head.  [default: data/heads/EXPERIMENT]")
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Processes that read batches ahead; the head does not depend on their number.",
)
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
@click.pass_context
def train(
    ctx: click.Context,
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
    device: str,
    leave_out_failed: bool,
) -> None:
    """Fit an experiment's head on the training split; the validation split chooses the epoch.

    The state after each epoch is kept beside the output until the head is written: the same
    command goes on from there. The number of epochs may be raised in between.

    \b
    Example:
      pipeline train --experiment wang2016-nonlinear-bidirectional-structure
    """
    params = load_params()
    plan = params.experiment(experiment)
    dataset, images, captions = inputs_of(plan, params, dataset, images, captions)
    train_split = train_split or params.splits.train
    validation_split = validation_split or params.splits.validation
    seed = params.seed if seed is None else seed
    out = out or DATA / "heads" / experiment
    settings = with_epochs_at_most(plan.head, plan.settings, max_epochs or params.max_epochs)
    log_settings(
        "train",
        experiment=experiment,
        head=plan.head,
        settings=settings,
        dataset=dataset,
        train=train_split,
        validation=validation_split,
        word_vectors=plan.word_vectors,
        seed=seed,
        workers=workers,
        device=device,
        out=out,
    )
    require_folder(out)
    usable_device(device)
    manifest = read_manifest(dataset)
    splits = manifest.select(train_split), manifest.select(validation_split)
    image_set, caption_set = FeatureSet(images), FeatureSet(captions)
    inputs = Inputs.of(image_set, caption_set)
    head = make_head(plan.head, settings, inputs)
    if leave_out_failed:
        asked = sum(map(len, splits))
        splits = with_features(splits[0], image_set), with_features(splits[1], image_set)
        log_done(f"{asked - sum(map(len, splits))} images without features are left out")
    known = None
    if plan.word_vectors is not None:
        encoder = captions.with_name(f"{captions.name}.encoder")
        known = known_words(inputs.captions, encoder, plan.word_vectors)
        log_done(
            f"{len(known.missing)} of {len(known.rows)} word numbers have no vector in "
            f"{plan.word_vectors}, first {', '.join(known.missing[:5])}"
        )
    pairs, validation = (join_pairs(s, image_set, caption_set) for s in splits)
    log_sizes(train_split, pairs)
    log_sizes(validation_split, validation)
    started = time.monotonic()
    # As for shards: `..`, `.` and links are resolved once and for all.
    resolved = out.resolve()
    work = resolved.parent / WORK_FOLDER / f"train-{resolved.name}"
    work.mkdir(parents=True, exist_ok=True)
    with only_writer(work.with_name(f"{work.name}.lock"), out):
        run = Run(
            seed,
            work=work,
            workers=workers,
            device=device,
            words=None if known is None else known.rows,
        )
        history = _fit(head, pairs, validation, run, experiment)
        if history is None:
            ctx.exit(FAILED)
        TrainedHead(
            experiment=experiment,
            kind=plan.head,
            settings=settings,
            seed=seed,
            dataset=manifest.name,
            train_split=train_split,
            validation_split=validation_split,
            inputs=inputs,
            word_vectors=None if known is None else known.origin,
            history=history,
            created_by=created_by("torch", "numpy", "safetensors"),
            head=head,
        ).save(out)
        shutil.rmtree(work, ignore_errors=True)
    chosen = next((entry for entry in history if entry.get("best")), history[-1])
    figures = ", ".join(f"{name} {value:g}" for name, value in chosen.items() if name != "best")
    log_done(f"{out}: {figures}; {time.monotonic() - started:.1f} s")


def _fit(head: Head, pairs: Pairs, validation: Pairs, run: Run, name: str) -> History | None:
    """Fit with progress; None where somebody asked to stop, who is told how to go on."""
    epochs: list[int] = []
    with progress_of(name, "epoch") as show:

        def progress(done: int, total: int, failed: int) -> None:
            if done and not epochs:
                log_done(f"{run.work} has the state after epoch {done} of {total}; it goes on")
            epochs.append(done)
            show(done, total, failed)

        try:
            return head.fit(pairs, validation, replace(run, progress=progress))
        except KeyboardInterrupt:
            kept = f"{epochs[-1] if epochs else 0} epochs are kept in {run.work}"
            log_done(f"interrupted: {kept}; the same command goes on from there")
            return None
