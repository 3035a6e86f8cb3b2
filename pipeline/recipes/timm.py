"""Any model of timm as a recipe: its own preprocessing, its pooled row before the classifier.

timm is an extra and is imported only when one of its models is named.
"""

import difflib
import importlib
import math
from typing import Any

from pipeline.recipes.schema import Crop, Normalise, Recipe, RecipeError, Resize

_PREFIX = "timm:"


def timm_recipe(name: str) -> Recipe:
    """Return the recipe of a model of timm, prepared as timm evaluates it.

    Parameters
    ----------
    name : "timm:<model>" or "timm:<model>.<tag>", as `timm.list_models()` spells it.

    Returns
    -------
    Recipe
        Its name carries the tag of the pretrained weights, so that a later timm with another
        default makes no other features under the same name.

    Raises
    ------
    RecipeError
        timm is not installed, has no such model, or prepares its images in a way that a recipe
        cannot say.
    """
    net = create_timm_model(name)
    described = net.pretrained_cfg
    tag = described.get("tag")
    full_name = f"{_PREFIX}{described['architecture']}" + (f".{tag}" if tag else "")
    config = _timm().data.resolve_data_config({}, model=net)
    channels, height, width = config["input_size"]
    mode, interpolation = config["crop_mode"], config["interpolation"]
    side = math.floor(height / config["crop_pct"])
    if (
        channels != 3
        or height != width
        or side < height
        or mode not in ("center", "squash")
        or interpolation not in ("bilinear", "bicubic")
    ):
        raise RecipeError(
            f"{full_name} prepares its images in a way that no recipe can say ({config}); known "
            "are square RGB input, centre crop or squash, bilinear or bicubic"
        )
    return Recipe(
        name=full_name,
        backbone=full_name,
        weights=full_name,
        resize=Resize("squash" if mode == "squash" else "shorter-side", side, interpolation),
        crop=Crop("centre", height),
        normalise=Normalise(255.0, tuple(config["mean"]), tuple(config["std"])),
        tap="pre_logits",
        activation="none",
        pool="none",
        combine_crops="none",
        shape=(getattr(net, "head_hidden_size", None) or net.num_features,),
        axes="row, channel",
        source="timm's evaluation",
    )


def create_timm_model(name: str, pretrained: bool = False) -> Any:
    """Return a model of timm without its classifier, in evaluation mode.

    Parameters
    ----------
    name : see `timm_recipe`.
    pretrained : whether it gets its weights, from the cache of huggingface_hub or downloaded.

    Raises
    ------
    RecipeError
        timm is not installed, has no such model, or cannot build it.
    OSError, RuntimeError, ValueError
        The pretrained weights cannot be had.
    """
    timm, model = _timm(), name.removeprefix(_PREFIX)
    if not timm.is_model(model):
        near = difflib.get_close_matches(model.partition(".")[0], timm.list_models(), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise RecipeError(f"timm {timm.__version__} has no model {model!r}{hint}")
    try:
        return timm.create_model(model, pretrained=pretrained, num_classes=0).eval()
    except RuntimeError as error:
        if pretrained:
            raise
        raise RecipeError(f"timm cannot build {model!r}: {error}") from error


def _timm() -> Any:
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise RecipeError(
            f"recipes of timm need the package timm ({error}); "
            "pip install 'caption-feature-pipeline[timm]'"
        ) from error
