"""What regions add to the commands; see `stages.additions`."""

from collections.abc import Mapping

TITLE = "Regions, clips and language"

COMMANDS = {
    "propose": "stages.regions.propose:propose",
    "localize": "stages.regions.localize:localize",
}
HELP = {
    "propose": "Propose object boxes for the images of a dataset.",
    "localize": "Train heads on regions and phrases, and localize phrases.",
}
EXTRACT = {"regions": "stages.regions.extract_regions:ExtractRegions"}
EVALUATE = {"regions": "stages.regions.evaluate_localized:EvaluateLocalized"}
SEARCH = {"regions": "stages.regions.search_regions:SearchRegions"}
LIST_RECIPES = {"regions": "stages.regions.family:recipes"}


def recipes() -> list[Mapping[str, str]]:
    """Return the recipes that pool a grid over boxes and that of the boxes, for `pipeline list`."""
    from pipeline.images.recipes import RECIPES
    from pipeline.regions.box_geometry import BOX_GEOMETRY
    from pipeline.regions.by_photo import ROI_ALIGN, map_recipe
    from stages.listing import recipe_row

    rows = []
    for recipe in RECIPES.values():
        if recipe.name.endswith("-grid"):
            name = recipe.name.removesuffix("-grid") + ROI_ALIGN
            shape = map_recipe(name).shape[-1:]
            rows.append(recipe_row(name, "regions", shape, "ROI align", recipe.weights))
    return [*rows, recipe_row(BOX_GEOMETRY, "regions", (6,), "corners and area of the box", "")]
