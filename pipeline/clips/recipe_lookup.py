"""The recipe of clips of a name: one of frames or one of sound."""

from pipeline.clips.recipes import ClipRecipe, resolve_clip_recipe
from pipeline.clips.sound_recipes import AnySoundRecipe, is_sound_recipe, sound_recipe


def recipe_of_clips(
    name: str, precision: str = "float32", storage: str = "float32"
) -> ClipRecipe | AnySoundRecipe:
    """Return the recipe of that name; rows of sound are always float32.

    Raises
    ------
    RecipeError
        There is none.
    """
    if is_sound_recipe(name):
        return sound_recipe(name)
    return resolve_clip_recipe(name, precision, storage)
