"""Any model of open_clip as a recipe: its image tower, preprocessing and weights."""

from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone, Library
from pipeline.images.backbones.timm_backbones import timm_tracing
from pipeline.images.layer_recipes import at_layer
from pipeline.images.networks.hub import datasets_in_tag
from pipeline.images.networks.open_clip_models import cached_weights, find_clip_model
from pipeline.images.networks.open_clip_weights import build_clip, load_clip_weights
from pipeline.images.networks.state_dicts import Weights
from pipeline.images.recipes.layers import ROW_AXES, LayerName, layout_of
from pipeline.images.recipes.schema import Crop, Normalise, Recipe, RecipeError, Resize


class _ImageTower(nn.Module):
    """The image tower of a model, under its name in the whole model."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.visual = net.visual

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, dim) embeddings, not L2-normalised, of (n, 3, size, size) crops."""
        output = self.visual(x)
        # CoCa's tower also returns its tokens.
        embedding: Tensor = output[0] if isinstance(output, tuple) else output
        return embedding


def open_clip_recipe(name: str) -> Recipe:
    """Return the recipe of an open_clip model, with open_clip's evaluation preprocessing.

    `name` is "open-clip:<model>[.<tag>]", for embeddings of length 1, or has
    "[-<pool>]@<layer>" after it, for the output of a layer of the image tower.
    Deviation: an image is converted to RGB before it is resized; open_clip does so afterwards.
    """
    parts = LayerName.parse(name)
    if parts is None or (parts.pool and not parts.layer):
        raise RecipeError(
            f"cannot parse {name!r}; expected open-clip:<model>.<tag>, or with "
            "[-<pool>]@<layer>, such as -grid@visual.transformer.resblocks.11"
        )
    model = find_clip_model(parts.base)
    config, way = model.config, model.preprocessing()
    size, mode = config["vision_cfg"].get("image_size", 224), way["resize_mode"]
    if not isinstance(size, int) or mode not in ("shortest", "squash"):
        raise RecipeError(
            f"a recipe cannot express the preprocessing of {model.name} (size {size}, {mode}); "
            "supported are square input, and resizing by the shorter side or by squashing"
        )
    squash = mode == "squash"
    # open_clip does the same with "random", which is a training mode.
    interpolation: Literal["bilinear", "bicubic"] = (
        "bilinear" if way["interpolation"] == "bilinear" else "bicubic"
    )
    recipe = Recipe(
        name=model.name, backbone=model.architecture, weights=model.name,
        resize=Resize("squash" if squash else "shorter-side", size, interpolation),
        crop=Crop("none" if squash else "centre", size),
        normalise=Normalise(255.0, tuple(way["mean"]), tuple(way["std"])),
        tap="embedding", activation="none", pool="none", combine_crops="none",
        shape=(config["embed_dim"],), axes=ROW_AXES, norm="l2", source="open_clip's evaluation",
        trained_on=datasets_in_tag(model.tag),
    )  # fmt: skip
    if parts.layer is None:
        return recipe
    base = replace(recipe, norm="none")
    at = parts._replace(base=model.name)
    return at_layer(base, at, open_clip_backbone(model.architecture))


def open_clip_backbone(name: str) -> Backbone:
    """Return the image tower of a model of open_clip as a backbone."""
    model = find_clip_model(name)

    def build() -> nn.Module:
        return _ImageTower(build_clip(model))

    # timm implements many of the towers.
    return Backbone(
        build, methods={"embedding": "forward"}, tracing=timm_tracing(), tested=False, load=_load,
        cached=_cached, layout=partial(layout_of, prefix={"class": 1}),
    )  # fmt: skip


def _cached(name: str) -> bool:
    model = find_clip_model(name)
    return bool(model.tag) and cached_weights(model) is not None


def _load(name: str, source: str) -> Weights:
    model = find_clip_model(name)
    source = "pretrained" if source == "imagenet" else source
    whole = load_clip_weights(model, source, build_clip(model))
    state = {key: value for key, value in whole.state.items() if key.startswith("visual.")}
    return Weights(whole.name, whole.sha256, state)


PROVIDER = Library(open_clip_recipe, open_clip_backbone)
