"""What clips and sound add to the commands; see `stages.additions`."""

from collections.abc import Mapping

PREPARE = {"clips": "stages.clips.prepare_clips:clips"}
EXTRACT = {"clips": "stages.clips.extract_clips:ExtractClips"}
LIST_RECIPES = {"clips": "stages.clips.family:recipes"}
LIST_BACKBONES = {"clips": "stages.clips.family:backbones"}


def recipes() -> list[Mapping[str, str]]:
    """Return the recipes of 3-D networks and of sound, for `pipeline list`."""
    from pipeline.clips.recipes import VOLUMES
    from pipeline.clips.sound.recipes import BIRDNET, EXAMPLE, sound_recipe
    from stages.listing import recipe_row

    rows = [recipe_row(v.name, "clips", v.shape, v.source, v.weights) for v in VOLUMES.values()]
    for name, source in ((EXAMPLE, "bag of sound words"), (BIRDNET, "BirdNET 2.4")):
        rows.append(recipe_row(name, "sound", sound_recipe(name).shape, source, ""))
    return rows


def backbones() -> list[Mapping[str, str]]:
    """Return the 3-D networks, each with its first recipe, for `pipeline list`."""
    from pipeline.clips.recipes import VOLUMES
    from stages.listing import backbone_row

    first = {v.backbone: v for v in reversed(VOLUMES.values())}
    return [
        backbone_row(name, volume.name, f"clips; {volume.weights}")
        for name, volume in reversed(first.items())
    ]
