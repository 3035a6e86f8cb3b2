"""Any timm model as a recipe: "timm:<model>", "timm:<model>-grid", "timm:<model>@<layer>".

timm is an optional dependency, imported only when one of its models is named.
"""

import difflib
import importlib.util
import math
import re
from typing import Any

from pipeline.images.networks.hub import datasets_in_tag
from pipeline.images.recipes.layers import TOKENS, layout_of, unknown_layer, unused_layer
from pipeline.images.recipes.schema import Crop, Normalise, Pool, Recipe, RecipeError, Resize
from pipeline.store.errors import UnknownName
from pipeline.store.extras import require
from pipeline.store.wording import did_you_mean

METHODS = {"pre_logits": "forward", "forward_features": "forward_features"}
"""Taps that are not layers, with the methods that compute them on a model without classifier."""

_PREFIX = "timm:"
_NAME = re.compile(r"timm:(?P<model>[^-@]+)(-(?P<part>[^@]*))?(@(?P<layer>.*))?")
# Part of a name, with the recipe's `pool`.
_PARTS: dict[str, Pool] = {"pool": "mean over cells", "grid": "none", **TOKENS}


def is_timm_model(model: str) -> bool:
    """Return whether timm is installed and has a model of this name."""
    return importlib.util.find_spec("timm") is not None and bool(_timm().is_model(model))


def timm_recipe(name: str) -> Recipe:
    """Return the recipe of a timm model, with timm's evaluation preprocessing at its test size.

    `name` is "timm:<model>[.<tag>][-<part>][@<layer>]", model and tag as in
    `timm.list_pretrained()`. Without a layer: timm's own pooled row before the classifier; with
    the part "grid" the output of `forward_features` without its prefix tokens; with "class",
    "distillation" or "registers" those tokens. With a layer: its output, as a grid or a row; with
    the part "pool" the mean of its cells.
    """
    match = _NAME.fullmatch(name)
    if match is None or match["part"] not in (None, *_PARTS) or match["layer"] == "":
        raise RecipeError(
            f"cannot parse {name!r}; expected timm:<model> or timm:<model>-<part> with one of the "
            f"parts {', '.join(_PARTS)}, optionally followed by @<layer>"
        )
    with _torch().device("meta"):
        net = create_timm_model(_PREFIX + match["model"])
    cfg = net.pretrained_cfg
    backbone = _PREFIX + cfg["architecture"] + (f".{cfg['tag']}" if cfg.get("tag") else "")
    config = _evaluation(net, backbone)
    part, layer, size = match["part"], match["layer"], config["input_size"][1]
    pooled = layer is None and part in (None, "pool")
    tap = layer or ("pre_logits" if pooled else "forward_features")
    pool: Pool = "none" if pooled else _PARTS[part or "grid"]
    usual = pooled or (layer is not None and part in (None, "grid"))
    output = _output(net, backbone, tap, size)
    try:
        layout = layout_of(output, prefix_tokens(net), is_channels_last(net))
        shape, axes = layout.row(pool)
        if part == "grid" and not layout.cells:
            raise RecipeError("its output is a row, which has no cells")
    except RecipeError as error:
        raise RecipeError(f"{name} reads {tap!r} of {backbone}: {error}") from error
    # The name has the tag of the weights, also if it was left out: should a later timm change the
    # default, the same name still means the same features.
    squash, canvas = config["crop_mode"] == "squash", math.floor(size / config["crop_pct"])
    return Recipe(
        name=backbone + ("" if usual else f"-{part}") + (f"@{layer}" if layer else ""),
        backbone=backbone, weights=backbone,
        resize=Resize("squash" if squash else "shorter-side", canvas, config["interpolation"]),
        crop=Crop("centre", size),
        normalise=Normalise(255.0, tuple(config["mean"]), tuple(config["std"])),
        tap=tap, activation="none", pool=pool, combine_crops="none", shape=shape, axes=axes,
        source="timm's evaluation", trained_on=datasets_in_tag(cfg.get("tag") or ""),
    )  # fmt: skip


def is_channels_last(net: Any) -> bool:
    """Return whether the maps of a timm model have their channels last."""
    return getattr(net, "output_fmt", "") == "NHWC"


def prefix_tokens(net: Any) -> dict[str, int]:
    """Return name and number of the tokens that a timm model puts before the patch tokens."""
    names = {name.rpartition(".")[2].rstrip("0123456789_") for name, _ in net.named_parameters()}
    # Models that do not record the number have a class token, if any.
    named = {"class": int("cls_token" in names), "distillation": int("dist_token" in names)}
    count = getattr(net, "num_prefix_tokens", sum(named.values()))
    if count == 0:
        return {}
    named["registers"] = count - sum(named.values())
    return {name: number for name, number in named.items() if number > 0}


def create_timm_model(name: str, pretrained: bool = False) -> Any:
    """Return the model "timm:<model>[.<tag>]" without its classifier, in evaluation mode."""
    timm, full = _timm(), name.removeprefix(_PREFIX)
    model, _, tag = full.partition(".")
    if not timm.is_model(model):
        hint = did_you_mean(model, timm.list_models())
        raise UnknownName(f"timm {timm.__version__} has no model {model!r}; {hint}")
    try:
        return timm.create_model(full, pretrained=pretrained, num_classes=0).eval()
    except RuntimeError as error:
        if pretrained:
            raise
        tags = [entry.partition(".")[2] for entry in timm.list_pretrained(f"{model}.*")]
        near = difflib.get_close_matches(tag, tags, n=3, cutoff=0.3) or tags[:5]
        hint = f"; did you mean {' or '.join(near)}?" if tag and tag not in tags and near else ""
        raise RecipeError(f"timm cannot build {full!r}: {error}{hint}") from error


def _evaluation(net: Any, backbone: str) -> dict[str, Any]:
    """Return timm's evaluation preprocessing of a model."""
    config: dict[str, Any] = _timm().data.resolve_data_config({}, model=net, use_test_size=True)
    channels, height, width = config["input_size"]
    share, mode, filtered = (config[key] for key in ("crop_pct", "crop_mode", "interpolation"))
    supported = {
        f"{channels} channels": channels == 3,
        f"{height} x {width} pixels": height == width,
        f"a crop of {share} times the canvas": share <= 1,
        f"crop mode {mode!r}": mode in ("center", "squash"),
        f"{filtered} interpolation": filtered in ("bilinear", "bicubic"),
    }
    if faults := [text for text, holds in supported.items() if not holds]:
        raise RecipeError(
            f"{backbone} needs {', '.join(faults)}, which a recipe cannot express; supported are "
            "square RGB input, a centre crop of the image or squashed image, bilinear or bicubic"
        )
    return config


def _output(net: Any, backbone: str, tap: str, size: int) -> tuple[int, ...]:
    """Return the shape of a tap's output for one image, without computing it."""
    images = next(net.parameters()).new_zeros((1, 3, size, size))
    if tap in METHODS:
        output = getattr(net, METHODS[tap])(images)
    else:
        layers = {layer: module for layer, module in net.named_modules() if layer}
        if tap not in layers:
            raise unknown_layer(backbone, tap, layers)
        seen: list[Any] = []
        layers[tap].register_forward_hook(lambda *call: seen.append(call[2]))
        net(images)
        if not seen:
            raise unused_layer(backbone, tap)
        output = seen[0]
    if not hasattr(output, "shape"):
        actual = f"a {type(output).__name__}"
    elif output.shape[0] != 1:
        actual = f"{output.shape[0]} outputs of {tuple(output.shape[1:])} per image"
    else:
        return tuple(output.shape[1:])
    raise RecipeError(f"{tap!r} of {backbone} has {actual}, expected one; choose another layer")


def _timm() -> Any:
    return require("timm", "timm recipes need")


def _torch() -> Any:
    return importlib.import_module("torch")
