"""Conversion of layer outputs to rows of a recipe: channels last, tokens as a grid or by name."""

from torch import Tensor

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.recipes import Recipe, RecipeError


def pooled(output: Tensor, recipe: Recipe, backbone: Backbone) -> Tensor:
    """Apply a recipe's `pool` to the output of its tap.

    Parameters
    ----------
    output : (n, ...) output of the recipe's tap; see `pipeline.images.recipes.layers.Layout`.
    recipe, backbone : Recipe, Backbone. Recipe, and backbone, which defines the layout of the
        output.

    Returns
    -------
    (n, channels), (n, cell_y, cell_x, channels) or (n, tokens, channels)

    Raises
    ------
    RecipeError
        The output's layout does not fit `pool`.
    """
    try:
        layout = backbone.layout(tuple(output.shape[1:]))
        shape, _ = layout.row(recipe.pool)
    except RecipeError as fault:
        raise RecipeError(
            f"{recipe.name}: pool {recipe.pool!r} does not fit layer {recipe.tap!r} with output "
            f"{tuple(output.shape[1:])}: {fault}; set another pool, or read another layer"
        ) from fault
    if recipe.pool not in ("none", "mean over cells"):
        return output[:, layout.tokens(recipe.pool)].reshape(-1, *shape)
    if layout.kind == "tokens":
        output = output[:, sum(layout.prefix.values()) :].unflatten(1, layout.cells)
    elif layout.kind == "maps":
        output = output.permute(0, 2, 3, 1)
    return output.mean(dim=(1, 2)) if recipe.pool == "mean over cells" else output
