"""The networks and weights of timm."""

import importlib
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.engine.fuse import Tracing
from pipeline.images.networks import WeightsError
from pipeline.images.networks.hub import hub_or_cache
from pipeline.images.recipes.layers import layout_of
from pipeline.images.recipes.timm_recipes import (
    METHODS,
    create_timm_model,
    is_channels_last,
    prefix_tokens,
)


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
