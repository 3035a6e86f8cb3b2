"""The feature folders that a language model is trained on, opened and checked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.datasets.entries import PackedEntries
from pipeline.datasets.manifest import MANIFEST_FILE
from pipeline.hashing import sha256_of_file
from pipeline.heads.inputs.feature_spec import FeatureSpec, require_vectors
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.language import LanguageError
from pipeline.language.data import SentenceSets, require_cosine, sentence_pairs
from pipeline.language.model_types import LanguageExperiment
from pipeline.shards.feature_set import FeatureSet


@dataclass(frozen=True)
class LanguageInputs:
    """The folders that a language model is trained on.

    Attributes
    ----------
    sentences : str or Path. Features of the captions, token ids, next to their fitted encoder.
    tags : str or Path or None. Their tags, for a model that reads tags.
    images : str or Path or None. Image features, for a model conditioned on images.
    captions, head : str or Path or None. Features of the captions, next to their fitted encoder,
        and the head that embeds them, for a model conditioned on the sentence.
    """

    sentences: str | Path
    tags: str | Path | None = None
    images: str | Path | None = None
    captions: str | Path | None = None
    head: str | Path | None = None

    def require(self, experiment: LanguageExperiment) -> None:
        """Check that an experiment's model has the folders that it needs.

        Raises
        ------
        LanguageError
        """
        needed = {"nothing": [], "sentence": ["captions", "head"], "image": ["images"]}
        names = [*needed[experiment.condition], *["tags"] * experiment.takes_tags]
        if missing := [name for name in names if getattr(self, name) is None]:
            raise LanguageError(
                f"the language model {experiment.model!r} needs {' and '.join(missing)}; give the "
                "folder of each"
            )

    def open(self, experiment: LanguageExperiment) -> "OpenLanguageInputs":
        """Open the folders that an experiment's model reads.

        Raises
        ------
        LanguageError
            Sentences and tags do not belong together, or the head's similarity is not cosine.
        HeadError, ShardError
            Features are missing, damaged, or not those of the head.
        """
        tags = Path(self.tags) if experiment.takes_tags and self.tags is not None else None
        sets = SentenceSets(
            FeatureSet(Path(self.sentences)), None if tags is None else FeatureSet(tags)
        )
        features = {"sentences": sets.sentences}
        if sets.tags is not None:
            features["tags"] = sets.tags
        head, condition_dim = None, 1
        if experiment.condition == "sentence" and self.head and self.captions:
            head, features["captions"] = load_head(self.head), FeatureSet(Path(self.captions))
            head.inputs.captions.require(features["captions"], "caption")
            condition_dim = require_cosine(head, self.head)
        elif experiment.condition == "image" and self.images:
            features["images"] = FeatureSet(Path(self.images))
            condition_dim = require_vectors(experiment.model, FeatureSpec.of(features["images"]))
        return OpenLanguageInputs(sets, features, head, condition_dim)


@dataclass(frozen=True)
class OpenLanguageInputs:
    """The features that a language model is trained on.

    Attributes
    ----------
    sets : SentenceSets. Token ids and tags.
    features : dict of str to FeatureSet. All features by name: "sentences", and "tags",
        "captions" or "images" of a model that reads them.
    head : TrainedHead or None. The head whose embeddings of the captions are the conditions.
    condition_dim : int. Length of a condition.
    """

    sets: SentenceSets
    features: dict[str, FeatureSet]
    head: TrainedHead | None
    condition_dim: int

    @property
    def origin(self) -> dict[str, Any] | None:
        """Name and SHA-256 of the head, as the trained model records them."""
        if self.head is None:
            return None
        return {"experiment": self.head.experiment, "tensors_sha256": self.head.tensors_sha256}

    def pairs(self, entries: PackedEntries) -> Pairs:
        """Return the captions of some images with their conditions; see `sentence_pairs`."""
        return sentence_pairs(
            entries,
            self.sets,
            images=self.features.get("images"),
            captions=self.features.get("captions"),
            head=self.head,
        )

    def made_from(self, dataset: Path) -> dict[str, str]:
        """Return the SHA-256 of a dataset's manifest and of the features, by name."""
        hashes = {f"{n}_sha256": found.index.content_sha256 for n, found in self.features.items()}
        return {"manifest_sha256": sha256_of_file(dataset / MANIFEST_FILE), **hashes}
