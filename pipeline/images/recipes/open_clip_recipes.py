"""Any model of open_clip as a recipe: its own preprocessing, image embeddings of length 1."""

from typing import Literal

from pipeline.images.networks.hub import datasets_in_tag
from pipeline.images.networks.open_clip_models import find_clip_model
from pipeline.images.recipes.layers import ROW_AXES
from pipeline.images.recipes.schema import Crop, Normalise, Recipe, RecipeError, Resize


def open_clip_recipe(name: str) -> Recipe:
    """Return the recipe of an open_clip model, with open_clip's evaluation preprocessing.

    Deviation: an image is converted to RGB before it is resized; open_clip does so afterwards.
    """
    model = find_clip_model(name)
    config, way = model.config, model.preprocessing()
    size, mode = config["vision_cfg"].get("image_size", 224), way["resize_mode"]
    if not isinstance(size, int) or mode not in ("shortest", "squash"):
        raise RecipeError(
            f"a recipe cannot express the preprocessing of {model.name} (size {size}, {mode}); "
            "supported are square input, and resizing by the shorter side or by squashing"
        )
    squash = mode == "squash"
    # open_clip does the same with "random", which is a training mode.
    interpolation: Literal["bilinear", "bicubic"] = (
        "bilinear" if way["interpolation"] == "bilinear" else "bicubic"
    )
    return Recipe(
        name=model.name, backbone=model.architecture, weights=model.name,
        resize=Resize("squash" if squash else "shorter-side", size, interpolation),
        crop=Crop("none" if squash else "centre", size),
        normalise=Normalise(255.0, tuple(way["mean"]), tuple(way["std"])),
        tap="embedding", activation="none", pool="none", combine_crops="none",
        shape=(config["embed_dim"],), axes=ROW_AXES, norm="l2", source="open_clip's evaluation",
        trained_on=datasets_in_tag(model.tag),
    )  # fmt: skip
