"""Libraries whose models are available as recipes, by name prefix: "timm:<model>".

An entry here builds the recipe; the entry of the same prefix in
`pipeline.images.backbones.known_backbones` builds the network.
"""

from collections.abc import Callable

from pipeline.images.recipes.open_clip_recipes import open_clip_recipe
from pipeline.images.recipes.schema import Recipe
from pipeline.images.recipes.timm_recipes import timm_recipe

PROVIDERS: dict[str, Callable[[str], Recipe]] = {
    "open-clip": open_clip_recipe,
    "timm": timm_recipe,
}


def provider_of(name: str) -> str | None:
    """Return the prefix of a recipe or backbone name if it is in `PROVIDERS`, otherwise None."""
    prefix, colon, _ = name.partition(":")
    return prefix if colon and prefix in PROVIDERS else None
