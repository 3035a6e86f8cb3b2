"""`pipeline train`: an experiment's head is fitted on the training split."""

import time
from pathlib import Path

import click

from pipeline.canonical import require_folder
from pipeline.datasets.manifest import read_manifest
from pipeline.heads.catalogue import make_head
from pipeline.heads.files import FeatureIdentity, TrainedHead
from pipeline.heads.pairs import join_pairs, with_features
from pipeline.shards.read import FeatureSet
from pipeline.software import created_by
from stages.console import log_done, log_settings, progress_of
from stages.experiment import experiment_options, inputs_of
from stages.params import DATA, load_params


@click.command()
@experiment_options
@click.option("--train-split", help="[default: that of params.yaml]")
@click.option("--validation-split", help="[default: that of params.yaml]")
@click.option("--seed", type=click.IntRange(0), help="[default: that of params.yaml]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the head.  [default: data/heads/EXPERIMENT]",
)
def train(
    experiment: str,
    dataset: Path | None,
    images: Path | None,
    captions: Path | None,
    train_split: str | None,
    validation_split: str | None,
    seed: int | None,
    out: Path | None,
    leave_out_failed: bool,
) -> None:
    """Fit an experiment's head on the training split; the validation split chooses the epoch.

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
    log_settings(
        "train",
        experiment=experiment,
        head=plan.head,
        settings=plan.settings,
        dataset=dataset,
        train=train_split,
        validation=validation_split,
        seed=seed,
        out=out,
    )
    require_folder(out)
    manifest = read_manifest(dataset)
    splits = manifest.select(train_split), manifest.select(validation_split)
    image_set = FeatureSet(images)
    caption_set = FeatureSet(captions)
    if leave_out_failed:
        asked = sum(map(len, splits))
        splits = with_features(splits[0], image_set), with_features(splits[1], image_set)
        log_done(f"{asked - sum(map(len, splits))} images without features are left out")
    head = make_head(plan.head, plan.settings, image_set.row_shape, caption_set.row_shape)
    train_pairs, validation_pairs = (join_pairs(s, image_set, caption_set) for s in splits)
    log_done(
        f"{len(train_pairs.image_ids)} training images with {len(train_pairs.caption_ids)} captions"
        f", {len(validation_pairs.image_ids)} validation images"
    )
    started = time.monotonic()
    with progress_of(experiment, "epoch") as progress:
        history = head.fit(train_pairs, validation_pairs, seed, progress)
    TrainedHead(
        experiment=experiment,
        kind=plan.head,
        settings=plan.settings,
        seed=seed,
        dataset=manifest.name,
        train_split=train_split,
        validation_split=validation_split,
        images=FeatureIdentity.of(image_set),
        captions=FeatureIdentity.of(caption_set),
        history=history,
        created_by=created_by("torch", "numpy", "safetensors"),
        head=head,
    ).save(out)
    chosen = next((entry for entry in history if entry.get("best")), history[-1])
    figures = ", ".join(f"{name} {value:g}" for name, value in chosen.items() if name != "best")
    log_done(f"{out}: {figures}; {time.monotonic() - started:.1f} s")
