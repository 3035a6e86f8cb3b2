"""Any model of timm as a recipe: its own preprocessing, its pooled row before the classifier."""

import difflib
import importlib
import math
from typing import Any

import torch
from torch import Tensor

from pipeline.images.backbones import Backbone
from pipeline.images.state_dicts import WeightsError, state_sha256
from pipeline.recipes import Crop, Normalise, Recipe, RecipeError, Resize

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
    net = _created(name)
    facts = net.pretrained_cfg
    tag = facts.get("tag")
    whole = f"{_PREFIX}{facts['architecture']}" + (f".{tag}" if tag else "")
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
            f"{whole} prepares its images in a way that no recipe can say ({config}); known are "
            "square RGB input, centre crop or squash, bilinear or bicubic"
        )
    return Recipe(
        name=whole,
        backbone=whole,
        weights=whole,
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


def timm_backbone(name: str) -> Backbone:
    """Return a model of timm without its classifier.

    Raises
    ------
    RecipeError
        timm is not installed, or has no such model.
    """
    classifier = _created(name).pretrained_cfg.get("classifier") or ()
    heads = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return Backbone(lambda: _created(name), _row, heads=tuple(f"{head}." for head in heads))


def timm_pretrained(name: str) -> tuple[str, dict[str, Tensor]]:
    """Return timm's pretrained weights and the SHA-256 of their names, shapes and bytes.

    Raises
    ------
    WeightsError
        They are not in the cache and cannot be downloaded, or there are none.
    """
    try:
        state = _created(name, pretrained=True).state_dict()
    except (OSError, RuntimeError, ValueError) as error:
        raise WeightsError(
            f"the pretrained weights of {name} are not in the cache of huggingface_hub and cannot "
            f"be downloaded ({str(error).partition(chr(10))[0]}); fetch them on a machine that "
            "can and give them as a file, or take random:SEED for a trial without meaning"
        ) from error
    return state_sha256(state), state


def _row(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    rows = net(x)
    if tuple(rows.shape[1:]) != recipe.shape:
        raise RecipeError(
            f"{recipe.name} gives rows of {tuple(rows.shape[1:])}, not of {recipe.shape} as timm "
            "says of it; such a model has no pooled row"
        )
    return rows


def _created(name: str, pretrained: bool = False) -> Any:
    timm, model = _timm(), name.removeprefix(_PREFIX)
    if not timm.is_model(model):
        near = difflib.get_close_matches(model.partition(".")[0], timm.list_models(), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise RecipeError(f"timm {timm.__version__} has no model {model!r}{hint}")
    # Some models compute constants while they are built, which the meta device cannot.
    with torch.device("cpu"):
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
