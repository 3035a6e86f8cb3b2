"""Lookup of clip recipes by name, for frames or sound."""

from pipeline.clips.recipes import ClipRecipe, named_with, resolve_clip_recipe
from pipeline.clips.sound.recipes import AnySoundRecipe, is_sound_recipe, sound_recipe
from pipeline.store.jobs.side_by_side import split_name


def recipe_of_clips(
    name: str, precision: str = "float32", storage: str = "float32"
) -> ClipRecipe | AnySoundRecipe:
    """Return a clip recipe by its name; audio rows are always float32."""
    if is_sound_recipe(name):
        return sound_recipe(name)
    return resolve_clip_recipe(name, precision, storage)


def names_with(name: str, frames: str | None, over: str | None) -> str:
    """Return a recipe's name, or several joined by "+", with other frames; audio is unchanged."""
    together = split_name(name)
    if together is None:
        return name if is_sound_recipe(name) else named_with(name, frames, over)
    names = (n if is_sound_recipe(n) else named_with(n, frames, over) for n in together.recipes)
    return f"{together.scaling}:{'+'.join(names)}"
