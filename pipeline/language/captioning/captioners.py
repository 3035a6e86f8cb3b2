"""Captioners by experiment name, opened from the files of the experiment."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.splits import split_for
from pipeline.experiments.layout import Layout, unseeded
from pipeline.heads.finetuning import WEIGHTS_FILE
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.language.captioning.baselines import MostFrequentCaption, NearestCaption
from pipeline.language.captioning.captioner import LanguageCaptioner, Writing
from pipeline.language.captioning.captions import Captioner
from pipeline.language.presets import is_published
from pipeline.language.score_captions import RankingHead
from pipeline.language.trained_model import LANGUAGE_FILE, load_language_model
from pipeline.retrieval.query.picture_features import PictureFeatures, open_features
from pipeline.retrieval.query.query_models import open_encoder
from pipeline.store.errors import WrongUsage
from pipeline.store.shards.feature_set import FeatureSet

Baseline = Literal["nearest", "most-frequent"]


@dataclass(frozen=True)
class OpenCaptioner:
    """A captioner with its inputs."""

    name: str  # of its captions
    captioner: Captioner
    inputs: FeatureSpec  # image features that the captioner reads
    images: Path  # folder of these features for the dataset
    tuned: Path | None = None  # weights of a network fine-tuned with a head; None: the recipe's
    device: str = "cpu"  # of the captioner, and of `network`

    def network(self, weights: str | None = None) -> PictureFeatures:
        """Return the extractor of these features; see `open_features`."""
        if weights is None and self.tuned is not None:
            weights = str(self.tuned)
        return open_features(self.inputs, repr(self.name), weights, device=self.device)


def open_baseline(
    kind: Baseline,
    experiment: Experiment,
    layout: Layout,
    train_split: str | None = None,
    device: str = "cpu",
) -> OpenCaptioner:
    """Return a captioner without a language model, in a retrieval experiment's space."""
    manifest = read_manifest(layout.dataset)
    entries = manifest.select(split_for("train", manifest, train_split))
    head = load_head(layout.head(experiment.name), device)
    captioner: Captioner
    if kind == "nearest":
        captions = FeatureSet(layout.text(experiment.captions.name))
        captioner = NearestCaption(head, entries, captions)
    else:
        captioner = MostFrequentCaption(entries)
    return _in_space_of(head, experiment, layout, f"{experiment.name}-{kind}", captioner)


def open_captioner(
    name: str,
    layout: Layout,
    experiment_named: Callable[[str], Experiment],
    baseline: Baseline | None = None,
    *,
    writing: Writing | None = None,
    train_split: str | None = None,
    device: str = "cpu",
) -> OpenCaptioner:
    """Return the captioner of a language model, or of a baseline; raise if the two contradict."""
    writes = is_language_model(name, layout)
    if writes and baseline is None:
        return open_language_model(name, layout, experiment_named, writing, device)
    if writes or baseline is None:
        raise WrongUsage(
            f"{name} is a language model; `baseline=...` needs a retrieval experiment"
            if writes
            else f"{name!r} ranks captions but generates none; name a language model, or use "
            "`baseline=nearest` for its nearest training captions"
        )
    return open_baseline(baseline, experiment_named(name), layout, train_split, device)


def is_language_model(name: str, layout: Layout) -> bool:
    """Return whether a language model of this name is published or trained."""
    return is_published(name) or (layout.language(name) / LANGUAGE_FILE).is_file()


def open_language_model(
    name: str,
    layout: Layout,
    experiment_named: Callable[[str], Experiment],
    writing: Writing | None = None,
    device: str = "cpu",
) -> OpenCaptioner:
    """Return the captioner of a trained language model, whose name includes its seed, if any."""
    trained = load_language_model(layout.language(name), device)
    if trained.head is None:
        captioner = LanguageCaptioner(trained, None, None, writing)
        inputs = trained.inputs["images"]
        images = layout.features(inputs.name)
        return OpenCaptioner(name, captioner, inputs, images, device=device)
    space = str(trained.head["experiment"])
    experiment = replace(experiment_named(unseeded(space)), name=space)
    head = load_head(layout.head(space), device)
    encoder = open_encoder(head, layout.encoder(experiment.captions.name), None)
    captioner = LanguageCaptioner(trained, head, encoder, writing)
    return _in_space_of(head, experiment, layout, name, captioner)


def open_ranking_head(experiment: Experiment, layout: Layout) -> RankingHead:
    """Return the head of a retrieval experiment, to rank images by captions."""
    head = load_head(layout.head(experiment.name))
    encoder = open_encoder(head, layout.encoder(experiment.captions.name), None)
    return RankingHead(head, encoder, FeatureSet(layout.features(experiment.embedded_images)))


def _in_space_of(
    head: TrainedHead, experiment: Experiment, layout: Layout, name: str, captioner: Captioner
) -> OpenCaptioner:
    tuned = layout.head(experiment.name) / WEIGHTS_FILE if head.finetuning is not None else None
    images = layout.features(experiment.embedded_images)
    return OpenCaptioner(name, captioner, head.inputs.images, images, tuned, head.device)
