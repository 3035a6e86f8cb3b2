"""Shapes and recipes of the features of both sides, from which a head is built."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.heads import HeadError
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import FeatureHeader


@dataclass(frozen=True)
class FeatureSpec:
    """Shape and recipe of one side's features, as JSON values.

    Attributes
    ----------
    shape : tuple of int. Shape of one row.
    recipe : mapping. Recipe of the features, as in their shards.
    recipe_hash : str. Hash of recipe and weights.
    weights : str. Name of the network's weights, word vectors or vocabulary.
    weights_sha256 : str. Their SHA-256; empty in older head files.
    """

    shape: tuple[int, ...]
    recipe: Mapping[str, Any]
    recipe_hash: str
    weights: str
    weights_sha256: str = ""

    @classmethod
    def of(cls, features: FeatureSet) -> "FeatureSpec":
        """Return the spec of a feature set."""
        return cls.of_header(features.index.header)

    @classmethod
    def of_header(cls, header: FeatureHeader) -> "FeatureSpec":
        """Return the spec of features with a given header."""
        return cls(
            header.row_shape,
            header.recipe,
            header.recipe_hash,
            header.weights,
            header.weights_sha256,
        )

    @property
    def name(self) -> str:
        """Name of the recipe, for messages."""
        return str(self.recipe.get("name", "features without a name"))

    def require(self, features: FeatureSet, side: str) -> None:
        """Check that a feature set matches this spec.

        Raises
        ------
        HeadError
            Recipe, weights or shape differ.
        """
        found = FeatureSpec.of(features)
        if (found.recipe_hash, found.shape) != (self.recipe_hash, self.shape):
            raise HeadError(
                f"{features.folder} holds {side} features {found.name!r} {found.shape} with "
                f"weights {found.weights!r} (hash {found.recipe_hash}), but the head was fitted on "
                f"{self.name!r} {self.shape} with {self.weights!r} (hash {self.recipe_hash}); use "
                "the features that it was fitted on, or run `pipeline train` again"
            )


@dataclass(frozen=True)
class HeadInputs:
    """Feature specs of both sides.

    Attributes
    ----------
    images, captions : FeatureSpec. Specs of image and caption features.
    """

    images: FeatureSpec
    captions: FeatureSpec

    @classmethod
    def of(cls, images: FeatureSet, captions: FeatureSet) -> "HeadInputs":
        """Return the specs of two feature sets."""
        return cls(FeatureSpec.of(images), FeatureSpec.of(captions))


@dataclass(frozen=True)
class CaptionBlock:
    """The columns of one encoder in a row of caption features.

    Attributes
    ----------
    kind : str. The recipe's "encoder": "mean", "bow", "tfidf", "fisher vector", "principal
        components" or "sequence"; empty if the recipe has none.
    columns : slice. Columns of the block in a row.
    recipe : mapping. Recipe of the block.
    """

    kind: str
    columns: slice
    recipe: Mapping[str, Any]

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.columns.stop - self.columns.start)

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary of a block of token ids."""
        return int(self.recipe["num_ids"])


def caption_blocks(side: FeatureSpec) -> tuple[CaptionBlock, ...]:
    """Return the blocks of caption features: one per concatenated encoder.

    Raises
    ------
    HeadError
        The features are not vectors, or the block sizes do not sum to their dimension.
    """
    dim = _vector(side, "caption features")
    recipe = side.recipe
    if recipe.get("encoder") != "concatenation":
        return (CaptionBlock(str(recipe.get("encoder", "")), slice(0, dim), recipe),)
    blocks: list[CaptionBlock] = []
    start = 0
    for own in recipe["parts"]:
        blocks.append(
            CaptionBlock(str(own.get("encoder", "")), slice(start, start + own["dim"]), own)
        )
        start += own["dim"]
    if start != dim:
        raise HeadError(
            f"the recipe of {side.name!r} has blocks of {start} columns in total, but its rows "
            f"have {dim}; run `pipeline text` again"
        )
    return tuple(blocks)


def require_sequence(head: str, captions: FeatureSpec) -> CaptionBlock:
    """Return the single block of captions that are word sequences (rows of token ids).

    Its recipe has "num_ids", the vocabulary size, and "layout", the marks around the words; see
    `pipeline.text.encoders.token_ids`.

    Raises
    ------
    HeadError
        The captions are not word sequences.
    """
    blocks = caption_blocks(captions)
    if [block.kind for block in blocks] != ["sequence"]:
        raise HeadError(
            f"head {head!r} reads captions word by word, but {captions.name!r} is "
            f"{_kinds(blocks)}; use caption features of the encoder token-ids"
        )
    return blocks[0]


def require_vectors(head: str, side: FeatureSpec) -> int:
    """Return the dimension of features that are one vector per image or caption.

    Raises
    ------
    HeadError
        They are grids, or contain token ids.
    """
    dim = _vector(side, f"head {head!r}")
    blocks = caption_blocks(side)
    if any(block.kind in ("sequence", "tags") for block in blocks):
        raise HeadError(
            f"head {head!r} needs vectors, but {side.name!r} is {_kinds(blocks)}: token ids are "
            "not a vector; use an encoder such as mean, or a head that reads words"
        )
    return dim


def require_averageable(captions: FeatureSpec) -> None:
    """Require caption features whose mean is meaningful.

    Raises
    ------
    HeadError
        They contain token ids.
    """
    if any(block.kind in ("sequence", "tags") for block in caption_blocks(captions)):
        raise HeadError(
            f"the captions of an image cannot be averaged: {captions.name!r} has token ids; "
            "leave out average_captions"
        )


def require_grid(head: str, side: FeatureSpec) -> tuple[int, int]:
    """Return the number of cells and of channels of features (*cells, channels).

    Raises
    ------
    HeadError
        The features are vectors.
    """
    if len(side.shape) < 2:
        raise HeadError(
            f"head {head!r} needs a grid or a list of regions for each image, but the rows of "
            f"{side.name!r} are vectors {side.shape}; use a recipe whose name ends with -grid"
        )
    *cells, channels = side.shape
    return math.prod(cells), channels


def _vector(side: FeatureSpec, taker: str) -> int:
    if len(side.shape) != 1:
        raise HeadError(
            f"{taker}: one vector per row is needed, but {side.name!r} has rows of shape "
            f"{side.shape}; use a recipe that pools"
        )
    return side.shape[0]


def _kinds(blocks: tuple[CaptionBlock, ...]) -> str:
    return " and ".join(repr(block.kind or "unknown") for block in blocks)
