"""Recipes of regions for `pipeline list`."""

from stages.recipe_rows import Row, recipe_row


def recipes() -> list[Row]:
    """Return the recipes that pool a grid over boxes, and that of the boxes alone."""
    from pipeline.images.recipes import RECIPES
    from pipeline.regions.box_geometry import BOX_GEOMETRY
    from pipeline.regions.by_photo import ROI_ALIGN, map_recipe

    rows = []
    for recipe in RECIPES.values():
        name = recipe.name.removesuffix("-grid") + ROI_ALIGN
        if recipe.name.endswith("-grid"):
            shape = map_recipe(name).shape[-1:]
            rows.append(recipe_row(name, "regions", shape, "ROI align", recipe.weights))
    return [*rows, recipe_row(BOX_GEOMETRY, "regions", (6,), "corners and area of the box", "")]
