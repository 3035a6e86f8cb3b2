"""What describes images by the name of an experiment: opened from where its files lie."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.splits import split_for
from pipeline.experiments.layout import Layout
from pipeline.finetuning import WEIGHTS_FILE
from pipeline.heads.catalogue import Experiment
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.images.network import RecipeNetwork
from pipeline.language import LanguageError
from pipeline.language.baselines import MostFrequentCaption, NearestCaption
from pipeline.language.captions import Captioner
from pipeline.language.evaluate import RankingHead
from pipeline.search.query_models import open_encoder, open_network
from pipeline.shards.feature_set import FeatureSet

Baseline = Literal["nearest", "most-frequent"]


@dataclass(frozen=True)
class OpenCaptioner:
    """What describes images, and what it looks at.

    Attributes
    ----------
    name : of its captions.
    captioner : what describes.
    head : whose image features it takes, and in whose space it is.
    images : folder of these features of the dataset.
    tuned : weights of the network that the head learnt together with; None: those of its features.
    """

    name: str
    captioner: Captioner
    head: TrainedHead
    images: Path
    tuned: Path | None = None

    def network(self, weights: str | None = None) -> RecipeNetwork:
        """Return the network of these features, for pictures; see `open_network`."""
        if weights is None and self.tuned is not None:
            weights = str(self.tuned)
        return open_network(self.head, weights)


def open_captioner(
    experiment: Experiment,
    layout: Layout,
    baseline: Baseline | None = None,
    train_split: str | None = None,
) -> OpenCaptioner:
    """Return what describes images by an experiment.

    Parameters
    ----------
    experiment : trained.
    layout : of the dataset.
    baseline : in the experiment's space, the "nearest" training caption or the "most-frequent" one.
    train_split : whose captions a baseline takes; None: the usual one.

    Raises
    ------
    LanguageError
        A retrieval experiment without a baseline.
    HeadError, DatasetError, ShardError
        The head, the dataset or the caption features are missing.
    """
    if baseline is None:
        raise LanguageError(
            f"{experiment.name!r} ranks captions and writes none; name an experiment of a language "
            "model, or give --baseline nearest for its nearest training captions"
        )
    manifest = read_manifest(layout.dataset)
    entries = manifest.select(split_for("train", manifest, train_split))
    head = load_head(layout.head(experiment.name))
    captioner: Captioner
    if baseline == "nearest":
        captions = FeatureSet(layout.text(experiment.captions.name))
        captioner = NearestCaption(head, entries, captions)
    else:
        captioner = MostFrequentCaption(entries)
    tuned = layout.head(experiment.name) / WEIGHTS_FILE
    return OpenCaptioner(
        f"{experiment.name}-{baseline}",
        captioner,
        head,
        layout.features(experiment.embedded_images),
        tuned if head.finetuning is not None else None,
    )


def open_ranking_head(experiment: Experiment, layout: Layout) -> RankingHead:
    """Return the head of a retrieval experiment, which ranks images by captions.

    Raises
    ------
    HeadError, EncoderError, ShardError
        The head, its sentence encoder or its image features are missing or do not belong together.
    """
    head = load_head(layout.head(experiment.name))
    encoder = open_encoder(head, layout.encoder(experiment.captions.name), None)
    return RankingHead(head, encoder, FeatureSet(layout.features(experiment.embedded_images)))
