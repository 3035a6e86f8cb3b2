"""Any image model of transformers as a recipe, "transformers:<id or folder>[-<pool>][@<layer>]".

The image is that of the model's image processor. Of a dual encoder only the image side is built.
"""

from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone, Library
from pipeline.images.backbones.transformers_processors import preprocessing
from pipeline.images.layer_recipes import at_layer
from pipeline.images.networks.state_dicts import Weights
from pipeline.images.networks.transformers_models import (
    PREFIX,
    WEIGHT_FILES,
    TransformersModel,
    is_dual,
)
from pipeline.images.recipes.layers import POOLS, ROW_AXES, LayerName, layout_of
from pipeline.images.recipes.schema import Recipe, RecipeError
from pipeline.store.errors import PipelineError

ROW, HIDDEN = "pooler_output", "last_hidden_state"
"""Taps that are not layers, by the library's names of its outputs."""

# Parameters of tokens before the patch tokens.
_TOKENS = {
    "class": ("cls_token", "class_token", "class_embedding"),
    "distillation": ("distillation_token",),
    "registers": ("register_tokens",),
}
# Models whose forward pass is random.
_RANDOM = {"vit_mae": "hides patches at random"}


def transformers_recipe(name: str) -> Recipe:
    """Return the recipe of an image model of transformers, with its image processor's image.

    Without a pool and a layer: the model's pooled row, of length 1 for dual encoders as in their
    own forward pass, or the class token of a model without one. With a pool: its last hidden state.
    Deviation: alpha is dropped; the library shows transparent images on white.
    """
    parts = LayerName.parse(name)
    if parts is None:
        raise RecipeError(
            f"cannot parse {name!r}; expected transformers:<id or folder>, or with one of "
            f"{', '.join(f'-{pool}' for pool in POOLS)}, and @<layer>"
        )
    model, backbone = _model(parts.base), transformers_backbone(parts.base)
    way = preprocessing(model)
    base = Recipe(
        name=parts.base, backbone=parts.base, weights=parts.base, resize=way.resize, crop=way.crop,
        normalise=way.normalise, tap=HIDDEN, activation="none", pool="none", combine_crops="none",
        shape=(1,), axes=ROW_AXES, source="transformers' image processor",
    )  # fmt: skip
    try:
        return _at(base, parts, backbone)
    except PipelineError:
        raise
    # The library's networks fail in any way for images of another size.
    except Exception as error:
        raise RecipeError(
            f"{name}: transformers cannot compute it for images of {way.crop.size} x "
            f"{way.crop.size} pixels ({type(error).__name__}: {error})"
        ) from error


def _at(base: Recipe, name: LayerName, backbone: Backbone) -> Recipe:
    """Return the recipe with the row that a name asks for."""
    if name.pool or name.layer:
        return at_layer(base, name, backbone, HIDDEN)
    net = backbone.outline()
    crop = torch.zeros((1, 3, base.crop.size, base.crop.size), device="meta")
    if net(crop) is None:
        if "class" not in _tokens(net):
            raise RecipeError(
                f"{base.name} has no pooled row and no class token; add a pool to its name, such "
                "as -pool, the mean of its cells"
            )
        return at_layer(base, name._replace(pool="class"), backbone, HIDDEN)
    return replace(at_layer(base, name, backbone, ROW), norm="l2" if is_dual(net) else "none")


def transformers_backbone(name: str) -> Backbone:
    """Return the image side of a model of transformers as a backbone."""
    model = _model(name)
    build = partial(model.build, _image_side)
    with torch.device("meta"):
        tokens = _tokens(build())
    return Backbone(
        build,
        methods={ROW: "forward", HIDDEN: HIDDEN},
        layout=partial(layout_of, prefix=tokens),
        tested=False,
        load=_load,
        cached=lambda weights: model.cached(*WEIGHT_FILES) is not None,
    )


def _model(name: str) -> TransformersModel:
    return TransformersModel(name.removeprefix(PREFIX))


def _load(name: str, source: str) -> Weights:
    return _model(name).load("pretrained" if source == "imagenet" else source, _image_side)


def _image_side(whole: Any) -> nn.Module:
    """Return the part of a model that images pass through, with methods that return tensors."""
    net = whole
    if is_dual(net):
        # Also without the scale of the loss.
        for name in [n for n, _ in net.named_children() if n.startswith("text")]:
            delattr(net, name)
        for name in [n for n, _ in net.named_parameters(recurse=False)]:
            delattr(net, name)
    elif "For" in type(net).__name__:
        # For a task, of which the library leaves out the head and perhaps an untrained pooler.
        net = net.base_model
    kind = net.config.model_type
    if kind in _RANDOM or not (is_dual(net) or net.main_input_name == "pixel_values"):
        reason = _RANDOM.get(kind, f"reads {net.main_input_name}, not images alone")
        raise RecipeError(f"{type(whole).__name__} {reason}; choose an image model of transformers")
    net.forward, net.last_hidden_state = partial(_row, net), partial(_hidden, net)
    return cast(nn.Module, net)


def _output(net: Any, pixels: Tensor) -> Any:
    if is_dual(net):
        return net.get_image_features(pixel_values=pixels)
    # The class's own; that of the network is `_row` or `_hidden`.
    return type(net).forward(net, pixel_values=pixels)


def _row(net: Any, pixels: Tensor) -> Tensor | None:
    """Return (n, channels) embeddings or pooled rows of (n, 3, size, size) crops, if it has any."""
    output = _output(net, pixels)
    row = getattr(output, "image_embeds", None)
    row = getattr(output, ROW, None) if row is None else row
    return None if row is None else row.flatten(1)


def _hidden(net: Any, pixels: Tensor) -> Tensor:
    hidden: Tensor = getattr(_output(net, pixels), HIDDEN)
    return hidden


def _tokens(net: nn.Module) -> dict[str, int]:
    """Return name and number of the tokens that a model puts before the patch tokens."""
    found = {name.rpartition(".")[2]: value for name, value in net.named_parameters()}
    counts = {
        token: sum(found[name].numel() // found[name].shape[-1] for name in names if name in found)
        for token, names in _TOKENS.items()
    }
    return {token: count for token, count in counts.items() if count}


PROVIDER = Library(transformers_recipe, transformers_backbone)
