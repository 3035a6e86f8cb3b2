"""The data for training and querying heads of regions and phrases, opened once."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline.datasets.manifest import NO_PICTURES, Manifest, read_manifest
from pipeline.datasets.phrases import RegionPhrase
from pipeline.datasets.regions import read_phrases, regions_sha256
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.pairs import made_from
from pipeline.regions import RegionError
from pipeline.regions.proposals import Proposals, image_of_region, read_proposals
from pipeline.store.progress import Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.wording import counted


@dataclass(frozen=True)
class Sources:
    """Folders of a dataset's regions and phrases."""

    dataset: Path
    phrases: Path  # features of the distinct phrases
    truth: Path  # features of the true boxes
    proposals: Path  # boxes of every image
    regions: Path  # features of these boxes, of the same recipe as `truth`
    most: int = 100  # maximum number of proposals per image, the first ones

    @property
    def encoder(self) -> Path:
        """Folder of the phrases' fitted encoder, next to their features."""
        return self.phrases.with_name(f"{self.phrases.name}.encoder")

    @cached_property
    def opened(self) -> "OpenSources":
        """The data of these folders."""
        return OpenSources(self)


class OpenSources:
    """The opened data of `Sources`, checked for consistency."""

    def __init__(self, sources: Sources) -> None:
        self.most: int = sources.most
        self._dataset = sources.dataset
        self.manifest: Manifest = read_manifest(sources.dataset).require(
            "images", "pipeline localize", NO_PICTURES
        )
        self.texts: FeatureSet = FeatureSet(sources.phrases)
        self.truth: FeatureSet = FeatureSet(sources.truth)
        self.regions: FeatureSet = FeatureSet(sources.regions)
        self.proposals: Proposals = read_proposals(sources.proposals)
        FeatureSpec.of(self.truth).require(self.regions, "region")
        for features in (self.texts, self.truth, self.regions):
            if features.index.header.dataset != self.manifest.name:
                raise RegionError(
                    f"{features.folder} has features of the dataset "
                    f"{features.index.header.dataset!r}, expected {self.manifest.name!r}"
                )
        self.inputs: HeadInputs = HeadInputs.of(self.truth, self.texts)
        # SHA-256 of all inputs
        self.made_from: dict[str, str] = {
            **made_from(sources.dataset, self.truth.index, self.texts.index),
            "phrases_sha256": regions_sha256(sources.dataset),
            "proposals_sha256": FeatureSet(sources.proposals).index.content_sha256,
            "regions_sha256": self.regions.index.content_sha256,
            "proposals_an_image": str(self.most),
        }

    def made_from_with(self, validation_images: int | None) -> dict[str, str]:
        """Return the inputs that a head records, without the head that it continues from."""
        return {**self.made_from, "validation_images": str(validation_images or "all")}

    def phrases(self, split: str) -> tuple[RegionPhrase, ...]:
        """Return the phrases of a split."""
        return read_phrases(self._dataset, split)

    def left_out(self, leave_out_failed: bool, monitor: Monitor) -> frozenset[str]:
        """Return the images to leave out, those with a failed true box or proposal."""
        if not leave_out_failed:
            return frozenset()
        failures = [*self.truth.failures(), *self.regions.failures()]
        images = frozenset(image_of_region(row_id)[0] for row_id, _, _ in failures)
        left = counted(
            len(images),
            "image without features of all regions is",
            "images without features of all regions are",
        )
        monitor.log(f"{left} left out")
        return images
