"""Any timm model as a recipe, "timm:<model>[-<pool>][@<layer>]": its network and weights.

timm is an optional dependency, imported only when one of its models is named.
"""

import difflib
import importlib
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone, Library
from pipeline.images.engine.fuse import Tracing
from pipeline.images.layer_recipes import at_layer
from pipeline.images.networks import WeightsError
from pipeline.images.networks.hub import datasets_in_tag, hub_or_cache
from pipeline.images.recipes.layers import POOLS, ROW_AXES, LayerName, layout_of
from pipeline.images.recipes.schema import Crop, Normalise, Recipe, RecipeError, Resize
from pipeline.store.errors import UnknownName
from pipeline.store.extras import require
from pipeline.store.wording import did_you_mean

METHODS = {"pre_logits": "forward", "forward_features": "forward_features"}
"""Taps that are not layers, with the methods that compute them on a model without classifier."""

_PREFIX = "timm:"


def timm_recipe(name: str) -> Recipe:
    """Return the recipe of a timm model, with timm's evaluation preprocessing at its test size.

    `name` is "timm:<model>[.<tag>][-<pool>][@<layer>]", model and tag as in
    `timm.list_pretrained()`. Without a layer: timm's own pooled row before the classifier; with
    "-grid" and other words for the pool, the output of `forward_features`.
    """
    parts = LayerName.parse(name)
    if parts is None or "-" in parts.base:
        raise RecipeError(
            f"cannot parse {name!r}; expected timm:<model> or timm:<model>-<part> with one of the "
            f"parts {', '.join(POOLS)}, optionally followed by @<layer>"
        )
    with torch.device("meta"):
        net = create_timm_model(parts.base)
    cfg = net.pretrained_cfg
    # The name has the tag of the weights, also if it was left out: should a later timm change the
    # default, the same name still means the same features.
    backbone = _PREFIX + cfg["architecture"] + (f".{cfg['tag']}" if cfg.get("tag") else "")
    config = _evaluation(net, backbone)
    pool, layer, size = parts.pool, parts.layer, config["input_size"][1]
    if layer is None and pool == "pool":
        pool = None  # a row already
    squash, canvas = config["crop_mode"] == "squash", math.floor(size / config["crop_pct"])
    base = Recipe(
        name=backbone, backbone=backbone, weights=backbone,
        resize=Resize("squash" if squash else "shorter-side", canvas, config["interpolation"]),
        crop=Crop("centre", size),
        normalise=Normalise(255.0, tuple(config["mean"]), tuple(config["std"])),
        tap="pre_logits", activation="none", pool="none", combine_crops="none", shape=(1,),
        axes=ROW_AXES, source="timm's evaluation",
        trained_on=datasets_in_tag(cfg.get("tag") or ""),
    )  # fmt: skip
    tap = "pre_logits" if layer is None and pool is None else "forward_features"
    recipe = at_layer(base, LayerName(backbone, pool, layer), timm_backbone(backbone), tap)
    if layer is None or pool != "grid":
        return recipe
    # Left out of the name: a layer without a word for the pool is a grid if it has cells.
    return replace(recipe, name=str(LayerName(backbone, None, layer)))


def timm_backbone(name: str) -> Backbone:
    """Return a model of timm as a backbone."""
    build = partial(create_timm_model, name)
    with torch.device("meta"):
        net = build()
    cfg = net.pretrained_cfg
    classifier = cfg.get("classifier") or ()
    heads = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return Backbone(
        build,
        # Built without its classifier, such a network returns what timm calls the pre-logits.
        methods=METHODS,
        heads=tuple(f"{head}." for head in heads),
        layout=partial(layout_of, prefix=prefix_tokens(net), channels_last=is_channels_last(net)),
        tracing=timm_tracing(),
        tested=False,
        pretrained=partial(_pretrained, name, cfg),
        cached=lambda weights: _cached(cfg),
    )


def timm_tracing() -> Tracing:
    """Return the tracing options that timm's networks need."""
    layers = importlib.import_module("timm.layers")
    leaves, functions = layers.get_notrace_modules(), layers.get_notrace_functions()
    return Tracing(tuple(leaves), tuple(functions), _parts)


def _parts(module: Any) -> Sequence[nn.Module]:
    """Return the batch norm and activation that timm merges into one module."""
    if type(module) is not importlib.import_module("timm.layers").BatchNormAct2d:
        return ()
    norm = nn.BatchNorm2d(module.num_features, module.eps, affine=module.affine)
    norm.load_state_dict(norm.state_dict() | dict(module.state_dict()), assign=True)
    return norm.eval().requires_grad_(False), module.drop, module.act


def _pretrained(name: str, cfg: dict[str, Any]) -> dict[str, Tensor]:
    try:
        with hub_or_cache() if cfg.get("hf_hub_id") else nullcontext():
            state: dict[str, Tensor] = create_timm_model(name, pretrained=True).state_dict()
    except (OSError, RuntimeError, ValueError) as error:
        repository, url = cfg.get("hf_hub_id"), cfg.get("url")
        if repository:
            source = f"https://huggingface.co/{repository}"
            remedy = (
                f"on a machine with access, `hf download {repository}` downloads them to the cache "
                f"of huggingface_hub; copy the folder {_folder(repository).name} from there to "
                f"{_folder(repository).parent}"
            )
        elif url:
            source = url
            remedy = f"download them elsewhere and copy the file to {_torch_file(url)}"
        else:
            raise WeightsError(
                f"timm has no pretrained weights of {name}; pass a weights file, or random:SEED "
                "for a trial with random weights"
            ) from error
        raise WeightsError(
            f"the pretrained weights of {name} ({source}) are not in the cache and cannot be "
            f"downloaded ({str(error).partition(chr(10))[0]}); {remedy}, or pass a state dict "
            "of timm's as a file, or random:SEED for a trial with random weights"
        ) from error
    return state


def _cached(cfg: dict[str, Any]) -> bool:
    """Return whether the pretrained weights are on this machine."""
    if repository := cfg.get("hf_hub_id"):
        return any(_folder(repository).glob("snapshots/*/*"))
    return bool(cfg.get("url")) and _torch_file(cfg["url"]).is_file()


def _folder(repository: str) -> Path:
    """Return the folder in which huggingface_hub caches a repository."""
    constants = importlib.import_module("huggingface_hub.constants")
    return Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def _torch_file(url: str) -> Path:
    """Return the path at which torch caches a URL."""
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


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


def _timm() -> Any:
    return require("timm", "timm recipes need")


PROVIDER = Library(timm_recipe, timm_backbone)
