"""Features of single images by the network of a recipe, or concatenated by several networks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.images.batches import feature_header
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import is_image_recipe, resolved_like
from pipeline.images.transforms import read_sample, windows_of
from pipeline.images.weights import load_weights
from pipeline.retrieval import EmbeddingsError
from pipeline.store.hashing import recipe_hash, sha256_of_json
from pipeline.store.shards.format import STATUS_NAMES, FeatureHeader
from pipeline.store.shards.side_by_side import SCALINGS, scaled


class PictureFeatures:
    """Computes features of single images, equal to those in shards of the recipe."""

    def __init__(self, networks: Sequence[RecipeNetwork], scaling: str = "none") -> None:
        """Store the network of one recipe, or those of several recipes to concatenate, scaled."""
        self.networks, self._scaling = tuple(networks), scaling

    def of(self, picture: Path | Image.Image) -> Features:
        """Return the features of an image, (1, *row_shape) float32, rounded as in the shards."""
        rows = []
        for network in self.networks:
            windows = torch.from_numpy(_windows(network, picture)[None])
            rows.append(network(windows).numpy().astype(network.recipe.storage))
        if len(rows) == 1:
            return np.asarray(rows[0], np.float32)
        return np.concatenate([scaled(row, self._scaling) for row in rows], axis=-1)


def open_features(
    side: FeatureSpec,
    user: str,
    weights: str | None = None,
    engine: str = "fast",
    device: str = "cpu",
) -> PictureFeatures:
    """Load the networks that computed some image features; `user` names who uses them."""
    if "parts" not in side.recipe:
        network, header = _network(side, user, weights, engine, device)
        if header.recipe_hash != side.recipe_hash:
            raise EmbeddingsError(
                f"the recipe {side.name!r} with the weights {header.weights!r} (recipe hash "
                f"{header.recipe_hash}) is not the one that {user} uses: weights "
                f"{side.weights!r}, recipe hash {side.recipe_hash}; pass those weights, or search "
                "with the id of an embedded image"
            )
        return PictureFeatures([network])
    if weights is not None:
        raise EmbeddingsError(
            f"{user} concatenates several recipes, {side.name!r}, and one weights file cannot "
            "replace the weights of all; omit it"
        )
    each = [
        _network(replace(side, recipe=recipe, weights=name), user, None, engine, device)
        for recipe, name in zip(side.recipe["parts"], side.weights.split("; "), strict=True)
    ]
    digest = sha256_of_json([header.weights_sha256 for _, header in each])
    parts = [header.recipe for _, header in each]
    if recipe_hash({**side.recipe, "parts": parts}, digest) != side.recipe_hash:
        raise EmbeddingsError(
            f"the recipes {side.name!r} with their weights are not those that {user} uses; "
            "search with the id of an image that is embedded already"
        )
    (scaling,) = (key for key, text in SCALINGS.items() if text == side.recipe["scaling"])
    return PictureFeatures([network for network, _ in each], scaling)


def _network(
    side: FeatureSpec, user: str, weights: str | None, engine: str, device: str
) -> tuple[RecipeNetwork, FeatureHeader]:
    """Return the network of one recipe, and the header of its features."""
    if {"clip", "media"} & {*side.recipe}:
        raise EmbeddingsError(
            f"{user} uses features of clips, {side.name!r}, for which image files are "
            "not embedded; search with the id of an embedded clip"
        )
    if not is_image_recipe(side.name):
        plugin = side.recipe.get("plugin")
        why = "that no recipe of `pipeline list recipes` makes"
        why = f"of {plugin}, which is not installed or registered" if plugin else why
        raise EmbeddingsError(
            f"{user} uses {side.name!r}, features {why}, so image files cannot be embedded; search "
            "with the id of an image that is embedded already"
        )
    recipe = resolved_like(side.name, side.recipe)
    source = weights or ("imagenet" if side.weights == recipe.weights else side.weights)
    if source.startswith("file:"):
        raise EmbeddingsError(
            f"{user} uses features of the weights file {side.weights[5:]!r}, whose path "
            "is not recorded; pass it as the weights"
        )
    loaded = load_weights(recipe, source, side.recipe.get("weights_prefix"))
    network = RecipeNetwork(recipe, loaded.state, device, engine)
    return network, feature_header(recipe, loaded, "")


def _windows(network: RecipeNetwork, picture: Path | Image.Image) -> npt.NDArray[np.uint8]:
    """Return the inputs of the network for an image, (windows, h, w, 3)."""
    resize = network.recipe.resize
    if isinstance(picture, Image.Image):
        return windows_of(picture, resize, network.window)
    sample = read_sample(picture, network.recipe, network.window)
    if sample.windows is None:
        raise EmbeddingsError(
            f"{picture} is {STATUS_NAMES[sample.status]}: {sample.error}; use an image that can "
            "be decoded"
        )
    return sample.windows
