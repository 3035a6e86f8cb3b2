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
    """Shape and recipe of one side's features, as JSON values."""

    shape: tuple[int, ...]  # of one row
    recipe: Mapping[str, Any]  # as in the shards of the features
    recipe_hash: str  # of recipe and weights
    weights: str  # name of the network's weights, word vectors or vocabulary
    weights_sha256: str = ""  # empty in older head files

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
        """Raise HeadError if a feature set has another recipe, other weights or shape."""
        actual = FeatureSpec.of(features)
        if (actual.recipe_hash, actual.shape) != (self.recipe_hash, self.shape):
            raise HeadError(
                f"{features.folder} holds {side} features {actual.name!r} {actual.shape} with "
                f"weights {actual.weights!r} (hash {actual.recipe_hash}), but the head was fitted "
                f"on {self.name!r} {self.shape} with {self.weights!r} (hash {self.recipe_hash}); "
                "use the features that it was fitted on, or run `pipeline train` again"
            )


@dataclass(frozen=True)
class HeadInputs:
    """Feature specs of both sides."""

    images: FeatureSpec
    captions: FeatureSpec

    @classmethod
    def of(cls, images: FeatureSet, captions: FeatureSet) -> "HeadInputs":
        """Return the specs of two feature sets."""
        return cls(FeatureSpec.of(images), FeatureSpec.of(captions))


@dataclass(frozen=True)
class CaptionBlock:
    """The columns of one encoder in a row of caption features."""

    # The recipe's "encoder": "mean", "bow", "tfidf", "fisher vector", "principal components",
    # "sequence" (token ids) or "tags"; empty if the recipe has none.
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
    """Return the blocks of caption features (vectors), one per concatenated encoder."""
    dim = _vector(side, "caption features")
    recipe = side.recipe
    if recipe.get("encoder") != "concatenation":
        return (CaptionBlock(str(recipe.get("encoder", "")), slice(0, dim), recipe),)
    blocks: list[CaptionBlock] = []
    start = 0
    for part in recipe["parts"]:
        blocks.append(
            CaptionBlock(str(part.get("encoder", "")), slice(start, start + part["dim"]), part)
        )
        start += part["dim"]
    if start != dim:
        raise HeadError(
            f"the recipe of {side.name!r} has blocks of {start} columns in total, but its rows "
            f"have {dim}; run `pipeline text` again"
        )
    return tuple(blocks)


def require_sequence(head: str, captions: FeatureSpec) -> CaptionBlock:
    """Return the single block of captions that are token ids; raise HeadError for others."""
    blocks = caption_blocks(captions)
    if [block.kind for block in blocks] != ["sequence"]:
        raise HeadError(
            f"head {head!r} reads captions word by word, but {captions.name!r} is "
            f"{_kinds(blocks)}; use the encoder token-ids, or a head of "
            "vectors, such as cca"
        )
    return blocks[0]


def require_vectors(head: str, side: FeatureSpec) -> int:
    """Return the dimension of features that are one vector per row; raise HeadError for others."""
    dim = _vector(side, f"head {head!r}")
    blocks = caption_blocks(side)
    if any(block.kind in ("sequence", "tags") for block in blocks):
        raise HeadError(
            f"head {head!r} needs vectors, but {side.name!r} is {_kinds(blocks)}: token ids are "
            "not a vector; use an encoder such as mean, or a head that reads words"
        )
    return dim


def require_averageable(captions: FeatureSpec) -> None:
    """Raise HeadError if caption features have token ids, whose mean is meaningless."""
    if any(block.kind in ("sequence", "tags") for block in caption_blocks(captions)):
        raise HeadError(
            f"the captions of an image cannot be averaged: {captions.name!r} has token ids; "
            "leave out average_captions"
        )


def require_grid(head: str, side: FeatureSpec) -> tuple[int, int]:
    """Return the number of cells and of channels of (*cells, channels); HeadError for vectors."""
    if len(side.shape) < 2:
        raise HeadError(
            f"head {head!r} needs a grid or a list of regions for each image, but the rows of "
            f"{side.name!r} are vectors {side.shape}; use a recipe whose name "
            "ends with -grid, or features of regions"
        )
    *cells, channels = side.shape
    return math.prod(cells), channels


def _vector(side: FeatureSpec, taker: str) -> int:
    if len(side.shape) != 1:
        raise HeadError(
            f"{taker}: one vector per row is needed, but {side.name!r} has rows of shape "
            f"{side.shape}; use a recipe that pools, or a head of grids and regions, such as scan"
        )
    return side.shape[0]


def _kinds(blocks: tuple[CaptionBlock, ...]) -> str:
    return " and ".join(repr(block.kind or "unknown") for block in blocks)
