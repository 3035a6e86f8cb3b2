"""Recipes and networks of clips and sound for `pipeline list`."""

from stages.recipe_rows import Row, recipe_row


def recipes() -> list[Row]:
    """Return the recipes of 3-D networks and of sound."""
    from pipeline.clips.recipes import VOLUMES
    from pipeline.clips.sound.recipes import BIRDNET, EXAMPLE, sound_recipe

    rows = [recipe_row(v.name, "clips", v.shape, v.source, v.weights) for v in VOLUMES.values()]
    for name, source in ((EXAMPLE, "bag of sound words"), (BIRDNET, "BirdNET 2.4")):
        rows.append(recipe_row(name, "sound", sound_recipe(name).shape, source, ""))
    return rows


def backbones() -> list[Row]:
    """Return the 3-D networks, each with its first recipe."""
    from pipeline.clips.recipes import VOLUMES

    volumes = {v.backbone: v for v in reversed(VOLUMES.values())}
    return [
        {"name": name, "recipe": volume.name, "description": f"clips; {volume.weights}"}
        for name, volume in reversed(volumes.items())
    ]
