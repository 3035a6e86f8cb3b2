"""Image recipes: all settings that change a feature, as named data.

Read `schema` for the fields of a recipe and `image_recipes` for the recipes by name. There is no
torch code here: `pipeline.images` executes recipes, and shards record them as canonical JSON.
"""

from pipeline.images.recipes.image_recipes import (
    DEFAULT_RECIPE,
    RECIPES,
    is_image_recipe,
    provider_of,
    resolve_recipe,
    resolved_like,
)
from pipeline.images.recipes.schema import (
    PILLOW_RGB,
    PRECISIONS,
    STORAGES,
    Crop,
    Normalise,
    Recipe,
    RecipeError,
    Resize,
)

__all__ = [
    "DEFAULT_RECIPE", "PILLOW_RGB", "PRECISIONS", "RECIPES", "STORAGES", "Crop", "Normalise",
    "Recipe", "RecipeError", "Resize", "is_image_recipe", "provider_of", "resolve_recipe",
    "resolved_like",
]  # fmt: skip
