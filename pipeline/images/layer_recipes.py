"""Recipes that read any layer of a network: the shape of its output, found without computing it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.recipes.layers import POOLS, LayerName, layout_of
from pipeline.images.recipes.schema import Preprocessing, Recipe, RecipeError
from pipeline.images.tap import TappedNetwork, first_tensor
from pipeline.store.errors import PipelineError

__all__ = ["at_layer", "layer_outputs", "preprocessed"]


def preprocessed(recipe: Recipe, preprocess: Preprocessing, backbone: Backbone) -> Recipe:
    """Return a recipe with other preprocessing, which shards record as part of the recipe.

    The number of cells follows the size of the crop.
    """
    way, windows = preprocess, preprocess.crop.windows
    changed = replace(
        recipe, resize=way.resize, crop=way.crop, normalise=way.normalise,
        combine_crops="mean" if windows > 1 else "none",
    )  # fmt: skip
    if way.crop.size == recipe.crop.size:
        return changed
    try:
        shape, axes = backbone.layout(_output_shape(changed, backbone)).row(recipe.pool)
    except RecipeError as error:
        size = way.crop.size
        raise RecipeError(f"{recipe.name} with crops of {size} pixels: {error}") from error
    return replace(changed, shape=shape, axes=axes)


def at_layer(
    base: Recipe,
    name: LayerName,
    backbone: Backbone,
    tap: str = "",
    output: tuple[int, ...] | None = None,
) -> Recipe:
    """Return a recipe that reads the layer of a name, or `tap`, in place of its own.

    The image, crops, norm and weights are those of `base`. Without a word for the pool in the name,
    it has the pool of `base`. `output` is the shape of the layer's output, if it is known.
    """
    tap = name.layer or tap
    pool = base.pool if name.pool is None else POOLS[name.pool]
    activation = base.activation if tap == base.tap else "none"
    recipe = replace(base, name=str(name), tap=tap, activation=activation, pool=pool)
    try:
        layout = backbone.layout(output or _output_shape(recipe, backbone))
        shape, axes = layout.row(pool)
        if name.pool == "grid" and not layout.cells:
            raise RecipeError("its output is a row, which has no cells")
    except RecipeError as error:
        raise RecipeError(f"{name} reads {tap!r} of {base.backbone}: {error}") from error
    return replace(recipe, shape=shape, axes=axes)


def layer_outputs(recipe: Recipe, backbone: Backbone) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the layers whose output can be read, in the order of the forward pass.

    Each has its name and the shape of its output for one crop.
    """
    net = _on_meta(backbone)
    seen: list[tuple[str, tuple[int, ...]]] = []

    def note(name: str, output: Any) -> None:
        output = first_tensor(output)
        if isinstance(output, Tensor) and len(output) == 1:
            seen.append((name, tuple(output.shape[1:])))

    for name, layer in net.named_modules():
        if name:
            layer.register_forward_hook(lambda _, __, output, name=name: note(name, output))
    _run(net, recipe)
    for name, shape in dict(seen).items():
        try:
            layout_of(shape)
        except RecipeError:
            continue
        yield name, shape


def _output_shape(recipe: Recipe, backbone: Backbone) -> tuple[int, ...]:
    """Return the shape of a recipe's tap for one crop."""
    tapped = TappedNetwork(_on_meta(backbone), backbone, recipe)
    output = _run(tapped, recipe)
    if not isinstance(output, Tensor):
        found = f"a {type(output).__name__}"
    elif len(output) != 1:
        found = f"{len(output)} outputs of {tuple(output.shape[1:])} per image"
    else:
        return tuple(output.shape[1:])
    raise RecipeError(f"it has {found}, expected one; choose another layer")


def _on_meta(backbone: Backbone) -> nn.Module:
    """Return the network without memory for its weights, in evaluation mode."""
    return backbone.outline().to("meta").eval()


def _run(net: nn.Module, recipe: Recipe) -> Any:
    """Return the output of a network on the meta device for one crop, without computing it."""
    size = recipe.crop.size
    try:
        with torch.inference_mode():
            return net(torch.zeros((1, 3, size, size), device="meta"))
    except PipelineError:
        raise
    # A network of a library may refuse a size in any way.
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise RecipeError(
            f"the network cannot run on a crop of {size} x {size} pixels ({reason}); choose "
            "another crop"
        ) from error
