"""Sentences with their conditions, as the training loop takes them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.heads.inputs.feature_rows import ArrayRows, FeatureRows, Features, Rows, loaded
from pipeline.heads.inputs.feature_spec import FeatureSpec, caption_blocks, require_sequence
from pipeline.heads.inputs.pairs import IN_MEMORY_BYTES, Pairs, require_same_texts
from pipeline.heads.trained_head import TrainedHead
from pipeline.language import LanguageError
from pipeline.language.language_task import Sizes
from pipeline.shards.feature_set import FeatureSet


@dataclass(frozen=True)
class SentenceSets:
    """Features of the captions of a dataset.

    Attributes
    ----------
    sentences : token ids.
    tags : of the same words, of a model that takes any.
    """

    sentences: FeatureSet
    tags: FeatureSet | None = None

    def __post_init__(self) -> None:
        block = require_sequence("language model", FeatureSpec.of(self.sentences))
        layout = block.recipe["layout"]
        if not (layout["start"] and layout["end"] and layout["padding"] == "back"):
            raise LanguageError(
                f"{self.sentences.folder} has token ids of the layout {layout['name']!r}; a "
                "language model needs a start mark, an end mark and padding behind: use the "
                "encoder token-ids"
            )
        if self.tags is None:
            return
        (tags,) = caption_blocks(FeatureSpec.of(self.tags))
        if tags.kind != "tags":
            raise LanguageError(
                f"{self.tags.folder} has {tags.kind or 'unknown features'}, no tags; use the "
                "encoder tags"
            )
        if tags.recipe["tokens"] != block.recipe["tokens"]:
            raise LanguageError(
                f"{self.tags.folder} has tags of the words of the tokenizer "
                f"{tags.recipe['tokens']['name']!r}, and {self.sentences.folder} words of "
                f"{block.recipe['tokens']['name']!r}; make both with the same tokenizer"
            )

    def sizes(self, condition_dim: int) -> Sizes:
        """Return what a model for these sentences is built for."""
        block = require_sequence("language model", FeatureSpec.of(self.sentences))
        num_tags = 0
        if self.tags is not None:
            num_tags = int(self.tags.index.header.recipe["num_ids"])
        return Sizes(block.vocab_size, block.dim, num_tags, condition_dim)


def sentence_pairs(
    entries: Sequence[ImageEntry],
    sets: SentenceSets,
    *,
    images: FeatureSet | None = None,
    captions: FeatureSet | None = None,
    head: TrainedHead | None = None,
) -> Pairs:
    """Join the captions of some images with a condition each.

    Parameters
    ----------
    entries : the images; those without a caption take no part.
    sets : the captions' token ids and tags.
    images : a condition is the features of the caption's image.
    captions, head : it is the point where a head embeds these features of the caption itself.
        Without any of both it is a zero.

    Returns
    -------
    Pairs
        `images` are the conditions, one of each image, or one of each caption where a head makes
        them; `captions` token ids with tags behind them.

    Raises
    ------
    MissingRows, FailedRows
        An image or caption has no features.
    HeadError
        No image has a caption, or features were made from another text.
    """
    packed = PackedEntries.of(entries)
    captioned = packed.take(np.flatnonzero(packed.num_captions))
    if not captioned:
        raise LanguageError("none of the images has a caption, so there are no sentences")
    said = captioned.captions
    image_ids, caption_ids = captioned.ids, said.ids
    image_of_caption = np.repeat(np.arange(len(captioned)), captioned.num_captions)
    columns = []
    for features in (sets.sentences, sets.tags):
        if features is not None:
            require_same_texts(said, features)
            rows = FeatureRows(features, caption_ids)
            columns.append(rows.take(np.arange(len(rows))))
    conditions: Rows = ArrayRows(np.zeros((len(captioned), 1), np.float32))
    if head is not None:
        assert captions is not None
        require_same_texts(said, captions)
        rows = FeatureRows(captions, caption_ids)
        conditions = ArrayRows(embed_captions(head, rows))
        image_ids, image_of_caption = caption_ids, np.arange(len(caption_ids))
    elif images is not None:
        conditions = loaded(FeatureRows(images, image_ids), IN_MEMORY_BYTES)
    both = ArrayRows(np.concatenate(columns, axis=1))
    return Pairs(image_ids, caption_ids, image_of_caption, conditions, both)


def embed_captions(head: TrainedHead, rows: Rows) -> Features:
    """Return the points (captions, dim) float32 of captions, of unit length."""
    points = head.head.embed_captions(rows)
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.where(norms > 0, norms, 1), np.float32)


def require_cosine(head: TrainedHead, where: object) -> int:
    """Return the dimension of a head's space, whose points are vectors that cosines compare.

    Raises
    ------
    LanguageError
        The similarity is another, or an image or caption is several vectors.
    """
    if head.head.similarity != "cosine":
        raise LanguageError(
            f"{where} holds a head {head.kind!r} whose similarity is {head.head.similarity!r}; a "
            "language model is conditioned on directions: take a head whose similarity is cosine, "
            "such as that of kiros2014-lstm"
        )
    probe = head.embed_captions(np.zeros((1, *head.inputs.captions.shape), np.float32))
    if probe.ndim != 2:
        raise LanguageError(
            f"{where} holds a head {head.kind!r} that makes {probe.shape[1]} vectors of a caption; "
            "take a head that makes one, such as that of kiros2014-lstm"
        )
    return int(probe.shape[1])
