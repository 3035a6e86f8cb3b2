"""Small networks that a test process builds once, for all jobs that ask for them.

Loading EfficientNet-Lite0 and folding its norms takes as long as running it on twenty images, and
the suite makes hundreds of sets with it. Tests of weights and engines build their own networks.
"""

from collections.abc import Sequence
from threading import Lock

import pytest
from torch import Tensor

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.network import RecipeNetwork
from pipeline.images.networks.state_dicts import Weights
from pipeline.images.recipes import Recipe
from pipeline.images.weights import load_weights

_USERS = (
    "images.image_source", "images.feature_extractor", "retrieval.query.picture_features",
    "regions.roi_align", "clips.views",
)  # fmt: skip
_MOST, _MOST_BYTES = 3, 1 << 25  # networks, and bytes of the weights of one
_weights: list[tuple[Backbone, str, str, Weights]] = []
_networks: list[tuple[dict[str, Tensor], tuple[object, ...], RecipeNetwork]] = []
_lock = Lock()


def share_networks(patch: pytest.MonkeyPatch) -> None:
    """Have the jobs of this process share networks of packaged and of random weights."""
    for user in _USERS:
        patch.setattr(f"pipeline.{user}.load_weights", shared_weights)
        patch.setattr(f"pipeline.{user}.RecipeNetwork", shared_network)


def forget_networks() -> None:
    """Keep no network for later calls."""
    _weights.clear()
    _networks.clear()


def shared_weights(
    recipe: Recipe,
    source: str = "imagenet",
    prefix: str | None = None,
    also: Sequence[Recipe] = (),
) -> Weights:
    """Return what `load_weights` returns, to be read and not written to."""
    own = recipe.weights
    if not source.startswith("random:") and not (source == "imagenet" and own[:8] == "package:"):
        return load_weights(recipe, source, prefix, also)
    backbone = backbone_named(recipe.backbone)
    with _lock:
        for of, *names, loaded in _weights:
            if of is backbone and names == [own, source]:
                return loaded
        loaded = load_weights(recipe, source)
        if sum(tensor.nbytes for tensor in loaded.state.values()) < _MOST_BYTES:
            _weights.append((backbone, own, source, loaded))
            del _weights[:-_MOST]
    return loaded


def shared_network(
    recipe: Recipe,
    state: dict[str, Tensor],
    device: str = "cpu",
    engine: str = "fast",
    also: Sequence[Recipe] = (),
) -> RecipeNetwork:
    """Return a network of these weights: the one of an earlier call if they are shared."""
    asked = (recipe, device, engine, *also)
    with _lock:
        for of, what, network in _networks:
            if of is state and what == asked:
                return network
        network = RecipeNetwork(recipe, state, device, engine, also)
        if any(loaded.state is state for *_, loaded in _weights):
            _networks.append((state, asked, network))
            del _networks[:-_MOST]
    return network
