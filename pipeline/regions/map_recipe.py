"""The recipe of the map that regions are pooled from, derived from its name."""

from dataclasses import replace

from pipeline.images.recipes import Crop, Recipe, RecipeError, Resize, resolve_recipe

ROI_ALIGN = "-roi-align"


def map_recipe(name: str, precision: str = "float32", storage: str = "float32") -> Recipe:
    """Return the recipe of an image's map: `<backbone>-grid` at twice its side.

    Raises
    ------
    RecipeError
        There is no such grid, or its cells are not square.
    """
    grid = resolve_recipe(name.removesuffix(ROI_ALIGN) + "-grid", precision, storage)
    if len(grid.shape) != 3 or grid.crop.rule != "none":
        raise RecipeError(
            f"{grid.name} has shape {grid.shape} from a {grid.crop.rule!r} crop; ROI align needs "
            "the map of a whole squashed image"
        )
    side = 2 * grid.crop.size
    return replace(
        grid,
        name=name,
        resize=Resize("squash", side),
        crop=Crop("none", side),
        shape=(2 * grid.shape[0], 2 * grid.shape[1], grid.shape[2]),
        source="this project",
    )
