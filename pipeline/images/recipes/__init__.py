"""Image recipes: all settings that change a feature, as named data.

Read `schema` for the fields of a recipe, `image_recipes` for the catalogue, and `by_name` for all
other names. There is no
torch code here: `pipeline.images` executes recipes, and shards record them as canonical JSON.
"""

from pipeline.images.recipes.by_name import (
    is_image_recipe,
    provider_of,
    resolve_recipe,
    resolved_like,
)
from pipeline.images.recipes.image_recipes import DEFAULT_RECIPE, RECIPES
from pipeline.images.recipes.schema import (
    PILLOW_RGB,
    PRECISIONS,
    STORAGES,
    Crop,
    Normalise,
    Preprocessing,
    Recipe,
    RecipeError,
    Resize,
)

__all__ = [
    "DEFAULT_RECIPE", "PILLOW_RGB", "PRECISIONS", "RECIPES", "STORAGES", "Crop", "Normalise",
    "Preprocessing", "Recipe", "RecipeError", "Resize", "is_image_recipe", "provider_of",
    "resolve_recipe", "resolved_like",
]  # fmt: skip
