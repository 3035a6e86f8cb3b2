"""Builds the networks and headers of clip recipes."""

from typing import Any

import numpy as np
from PIL import Image

from pipeline.clips.clip_batches import View
from pipeline.clips.recipes import ClipRecipe, VolumeRecipe
from pipeline.clips.volumes import VolumeNetwork, load_volume_weights
from pipeline.images.batches import default_parallelism
from pipeline.images.network import RecipeNetwork
from pipeline.images.transforms import windows_of
from pipeline.images.weights import Weights, load_weights
from pipeline.store.devices import device_type
from pipeline.store.files import created_by
from pipeline.store.jobs.options import Compute
from pipeline.store.shards.format import FeatureHeader, names_in

_RUNS_PER_BATCH, _RUNS_PER_BATCH_ON_GPU = 1, 16


def load_clip_weights(recipe: ClipRecipe, how: Compute) -> Weights:
    """Load the weights for a recipe's network."""
    load: Any = load_volume_weights if isinstance(recipe.network, VolumeRecipe) else load_weights
    loaded: Weights = load(recipe.network, str(how.weights), how.weights_prefix)
    return loaded


def clip_header(
    recipe: ClipRecipe, weights: Weights, dataset: str, trained_on: str | None
) -> FeatureHeader:
    """Return the header of these features."""
    network = recipe.network
    recorded = network.trained_on if weights.name == network.weights else ()
    return FeatureHeader(
        recipe={**recipe.to_json(), **weights.recipe_fields},
        weights=weights.name,
        weights_sha256=weights.sha256,
        axes=network.axes,
        dataset=dataset,
        row_shape=recipe.shape,
        dtype=recipe.storage,
        created_by=created_by("torch", "torchvision", "pillow", "numpy", "h5py", "av"),
        trained_on=recorded if trained_on is None else names_in(trained_on),
    )


def clip_view(recipe: ClipRecipe, weights: Weights, how: Compute) -> View:
    """Build a recipe's network."""
    if isinstance(recipe.network, VolumeRecipe):
        volumes = VolumeNetwork(recipe.network, weights.state, how.device)
        usual = _RUNS_PER_BATCH
        if device_type(how.device) != "cpu":
            usual = _RUNS_PER_BATCH_ON_GPU
        return View(recipe, recipe.network.run, volumes.cut, volumes, how.batch_size or usual)
    frames, network = (
        recipe.network,
        RecipeNetwork(recipe.network, weights.state, how.device, how.engine),
    )

    def cut(image: Image.Image) -> np.ndarray:
        return windows_of(image, frames.resize, network.window)

    size = how.batch_size or default_parallelism(frames, how.device).batch_size
    return View(recipe, 1, cut, network, size)
