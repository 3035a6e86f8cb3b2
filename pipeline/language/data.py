"""The training data of a language model: sentences joined with their conditions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.datasets.entries import PackedEntries
from pipeline.datasets.manifest import MANIFEST_FILE
from pipeline.heads.inputs.feature_rows import ArrayRows, FeatureRows, Features, Rows, loaded
from pipeline.heads.inputs.feature_spec import (
    CaptionBlock,
    FeatureSpec,
    caption_blocks,
    require_grid,
    require_sequence,
    require_vectors,
)
from pipeline.heads.inputs.pairs import IN_MEMORY_BYTES, Pairs, require_same_texts
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.language import LanguageError
from pipeline.language.language_task import Sizes
from pipeline.language.model_types import LanguageExperiment
from pipeline.store.hashing import sha256_of_file
from pipeline.store.shards.feature_set import FeatureSet


@dataclass(frozen=True)
class LanguageInputs:
    """Feature folders for training a language model."""

    sentences: str | Path  # token ids of the captions, next to their fitted encoder
    tags: str | Path | None = None  # for a model with tags
    images: str | Path | None = None  # for a model conditioned on images or on their embeddings
    # Features of the captions, next to their fitted encoder, and the head that embeds them, for a
    # model conditioned on the sentence.
    captions: str | Path | None = None
    head: str | Path | None = None
    corpus: str | Path | None = None  # UTF-8, one sentence per line; see `with_plain_text`

    def named(self, experiment: LanguageExperiment) -> dict[str, Path]:
        """Return the folders that an experiment's model needs, by name; raise if one is missing."""
        needed = {"nothing": [], "sentence": ["captions", "head"], "image": ["images"]}
        names = [*needed[experiment.condition], *["tags"] * experiment.takes_tags]
        names += ["images"] * (experiment.points == "images")
        if experiment.corpus and self.corpus is None:
            raise LanguageError(
                f"{experiment.name!r} is also trained on plain text; pass `corpus=...`, a file "
                "with one sentence per line"
            )
        if missing := [name for name in names if getattr(self, name) is None]:
            raise LanguageError(
                f"the language model {experiment.model!r} needs {' and '.join(missing)}; pass the "
                "folder of each"
            )
        return {name: Path(getattr(self, name)) for name in ("sentences", *names)}


class OpenLanguageInputs:
    """Opened features for training a language model."""

    def __init__(self, inputs: LanguageInputs, experiment: LanguageExperiment) -> None:
        """Open the folders that an experiment's model needs, and check that they match."""
        folders = inputs.named(experiment)
        head = folders.pop("head", None)
        # "sentences", and "tags", "captions" or "images" if the model needs them.
        self.features: dict[str, FeatureSet] = {
            name: FeatureSet(folder) for name, folder in folders.items()
        }
        sentences, tags = _require_token_ids(self.features["sentences"]), self.features.get("tags")
        if tags is not None:
            _require_tags_of(tags, sentences, self.features["sentences"].folder)
        # Its embeddings are the conditions: of the images, if there are any, else of the captions.
        self.head: TrainedHead | None = None
        condition_dim = 1
        if head is not None:
            self.head = load_head(head)
            self.head.inputs.captions.require(self.features["captions"], "caption")
            condition_dim = _require_cosine(self.head, head)
            if "images" in self.features:
                self.head.inputs.images.require(self.features["images"], "image")
        elif "images" in self.features:
            spec = FeatureSpec.of(self.features["images"])
            if experiment.attends:
                _, condition_dim = require_grid(experiment.model, spec)
            else:
                condition_dim = require_vectors(experiment.model, spec)
        num_tags = 0 if tags is None else int(tags.index.header.recipe["num_ids"])
        self.sizes = Sizes(sentences.vocab_size, sentences.dim, num_tags, condition_dim)

    @property
    def origin(self) -> dict[str, Any] | None:
        """Name and SHA-256 of the head, as the trained model records them."""
        if self.head is None:
            return None
        return {"experiment": self.head.experiment, "tensors_sha256": self.head.tensors_sha256}

    def made_from(self, dataset: Path) -> dict[str, str]:
        """Return the SHA-256 of a dataset's manifest and of the features, by name."""
        hashes = {f"{n}_sha256": rows.index.content_sha256 for n, rows in self.features.items()}
        return {"manifest_sha256": sha256_of_file(dataset / MANIFEST_FILE), **hashes}

    def pairs(self, entries: PackedEntries) -> Pairs:
        """Join captions of images with one condition each; images without captions are left out.

        Of the result, `images` are the conditions, (n, condition_dim) float32: with a head the
        embedding of each caption, or of each image if there are image features; without a head the
        features of each image, or a zero. `captions` are token ids followed by tags.
        """
        captioned = entries.take(np.flatnonzero(entries.num_captions))
        if not captioned:
            raise LanguageError("none of the images has a caption, so there are no sentences")
        captions = captioned.captions
        image_ids, caption_ids = captioned.ids, captions.ids
        image_of_caption = np.repeat(np.arange(len(captioned)), captioned.num_captions)
        by_caption = {}
        for name in [name for name in self.features if name != "images"]:
            require_same_texts(captions, self.features[name])
            by_caption[name] = FeatureRows(self.features[name], caption_ids)
        conditions: Rows = ArrayRows(np.zeros((len(captioned), 1), np.float32))
        by_caption.pop("captions", None)
        if "images" in self.features:
            conditions = loaded(FeatureRows(self.features["images"], image_ids), IN_MEMORY_BYTES)
            if self.head is not None:
                points = self.head.head.embed_images(conditions)
                conditions = ArrayRows(of_unit_length(points))
        elif self.head is not None:
            conditions = ArrayRows(self.sentence_points(entries))
            image_ids, image_of_caption = caption_ids, np.arange(len(caption_ids))
        columns = [rows.take(np.arange(len(rows))) for rows in by_caption.values()]
        both = ArrayRows(np.concatenate(columns, axis=1))
        return Pairs(image_ids, caption_ids, image_of_caption, conditions, both)

    def sentence_points(self, entries: PackedEntries) -> Features:
        """Return the embeddings (captions, dim) float32 of the captions in the head's space."""
        assert self.head is not None
        return embed_captions(
            self.head, FeatureRows(self.features["captions"], entries.captions.ids)
        )


def embed_captions(head: TrainedHead, rows: Rows) -> Features:
    """Return embeddings (captions, dim) float32 of captions, L2-normalised."""
    return of_unit_length(head.head.embed_captions(rows))


def of_unit_length(points: Features) -> Features:
    """Return points (..., dim) L2-normalised, as float32; zero vectors stay zero."""
    norms = np.linalg.norm(points, axis=-1, keepdims=True)
    return np.asarray(points / np.where(norms > 0, norms, 1), np.float32)


def _require_token_ids(sentences: FeatureSet) -> CaptionBlock:
    """Return the block of token ids; raise if a language model cannot be trained on it."""
    block = require_sequence("language model", FeatureSpec.of(sentences))
    layout = block.recipe["layout"]
    if not (layout["start"] and layout["end"] and layout["padding"] == "back"):
        raise LanguageError(
            f"{sentences.folder} has token ids of the layout {layout['name']!r}; a language model "
            "needs a start mark, an end mark and padding at the end: use the encoder token-ids"
        )
    return block


def _require_tags_of(tags: FeatureSet, sentences: CaptionBlock, folder: Path) -> None:
    """Check that features are tags of the words of the sentences in a folder."""
    (block,) = caption_blocks(FeatureSpec.of(tags))
    if block.kind != "tags":
        raise LanguageError(
            f"{tags.folder} has {block.kind or 'unknown features'}, not tags; use the encoder tags"
        )
    tokens, other = block.recipe["tokens"], sentences.recipe["tokens"]
    if tokens != other:
        raise LanguageError(
            f"{tags.folder} has tags for the tokenizer {tokens['name']!r}, but {folder} has words "
            f"of the tokenizer {other['name']!r}; encode both with the same tokenizer"
        )


def _require_cosine(head: TrainedHead, where: object) -> int:
    """Return the dimension of a head's space, which must compare single vectors by cosine."""
    if head.head.similarity != "cosine":
        raise LanguageError(
            f"{where} has a head {head.kind!r} with the similarity {head.head.similarity!r}; a "
            "language model is conditioned on directions: use a head whose similarity is cosine, "
            "such as that of kiros2014-lstm"
        )
    probe = head.embed_captions(np.zeros((1, *head.inputs.captions.shape), np.float32))
    if probe.ndim != 2:
        raise LanguageError(
            f"{where} has a head {head.kind!r} with {probe.shape[1]} vectors per caption; "
            "use a head with one, such as that of kiros2014-lstm"
        )
    return int(probe.shape[1])
