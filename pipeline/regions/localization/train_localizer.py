"""Training of a head on pairs of regions and phrases."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.datasets.phrases import RegionPhrase
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.feature_rows import FeatureRows
from pipeline.heads.inputs.links import links_of
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.heads.training.training_job import TrainingJob
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.regions import RegionError
from pipeline.regions.localization.mining import mine
from pipeline.regions.localization.pairs import training_pairs
from pipeline.regions.localization.queries import Queries
from pipeline.regions.localization.sources import OpenSources, Sources


def fit_to_phrases(
    sources: Sources,
    out: str | Path,
    *,
    experiment: Experiment,
    start: str | Path | None = None,
    validation_images: int | None = None,
    training: TrainingOptions = DEFAULT_TRAINING,
) -> TrainedHead:
    """Fit an experiment's head on the regions and phrases of the training split and save it.

    The epoch is selected by validation R@1 + R@5 + R@10. A head with `goes_on_from` starts from the
    tensors of the head in `start` and trains on the boxes that the latter mines. As in
    `pipeline.heads.fit.fit`, an interrupted training resumes from its last epoch and yields the
    same bytes.
    """
    if experiment.settings.get("selection") == "map":
        raise RegionError(
            f"{experiment.name!r} has the setting selection: map, the mean average precision of "
            "image queries, but phrases are the queries here; set it to rsum or last"
        )
    opened = sources.opened
    job = TrainingJob.open(opened.manifest, out, training)
    experiment = job.in_precision(experiment)
    source = opened.made_from_with(validation_images)
    unfitted = job.unfitted_head(experiment, opened.inputs, source)
    left_out = opened.left_out(training.leave_out_failed, training.monitor)
    phrases = [p for p in opened.phrases(job.train_split) if p.image not in left_out]
    pairs = training_pairs(phrases, opened.truth, opened.texts, training.seed)
    links = links_of(pairs)
    alone = int((np.diff(links.phrases_of_image.starts) == 1).sum())
    job.log(
        f"{job.train_split}: {len(pairs.image_ids)} regions, {alone} of them with one phrase, "
        f"{len(links.phrases)} distinct phrases, {len(pairs.caption_ids)} pairs"
    )
    held_out = Queries.of(
        opened, job.validation_split, images=validation_images, left_out=left_out
    ).in_memory()
    job.log(
        f"{job.validation_split}: {len(held_out.frame.query_ids)} queries, "
        f"{len(held_out.frame.boxes)} proposals"
    )
    if start is None:
        return job.fit(unfitted, pairs, held_out)
    begun = load_head(start)
    unfitted = replace(unfitted, made_from={**source, "start_sha256": str(begun.tensors_sha256)})
    pairs = _with_mined(pairs, begun, phrases, opened, training)
    return job.fit(unfitted, pairs, held_out, start=begun.head.tensors())


def _with_mined(
    pairs: Pairs,
    begun: TrainedHead,
    phrases: list[RegionPhrase],
    opened: OpenSources,
    training: TrainingOptions,
) -> Pairs:
    """Return the pairs with the hard negatives of a trained head."""
    begun.inputs.images.require(opened.truth, "region")
    begun.inputs.captions.require(opened.texts, "phrase")
    monitor = training.monitor
    with monitor.progress(begun.experiment, "image") as progress:
        mined = mine(begun.head, phrases, opened, seed=training.seed, progress=progress)
    having = int((mined.of_phrase.starts[1:] > mined.of_phrase.starts[:-1]).sum())
    monitor.log(
        f"{mined.count} proposals are closer to a phrase than its true boxes; sampled "
        f"{len(mined.of_phrase.values)} for {having} phrases, {len(mined.region_ids)} boxes"
    )
    if not mined.region_ids:
        return pairs
    links = replace(
        links_of(pairs),
        mined=FeatureRows(opened.regions, mined.region_ids),
        mined_of_phrase=mined.of_phrase,
    )
    return replace(pairs, links=links)
