"""The networks and weights of timm."""

from typing import Any

import torch
from torch import Tensor

from pipeline.images.backbone import Backbone
from pipeline.networks.state_dicts import WeightsError
from pipeline.recipes.timm import create_timm_model


def timm_backbone(name: str) -> Backbone:
    """Return a model of timm as a backbone.

    Raises
    ------
    RecipeError
        timm is not installed or has no such model.
    """

    def build() -> Any:
        # Some models compute constants while they are built, which the meta device cannot.
        with torch.device("cpu"):
            return create_timm_model(name)

    classifier = build().pretrained_cfg.get("classifier") or ()
    heads = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return Backbone(
        build,
        # Built without its classifier, such a network gives what timm calls the pre-logits.
        methods={"pre_logits": "forward"},
        heads=tuple(f"{head}." for head in heads),
        # There are too many of them to know what fusing would do to each.
        rewritable=False,
        pretrained=lambda: _pretrained(name),
    )


def _pretrained(name: str) -> dict[str, Tensor]:
    try:
        state: dict[str, Tensor] = create_timm_model(name, pretrained=True).state_dict()
    except (OSError, RuntimeError, ValueError) as error:
        raise WeightsError(
            f"the pretrained weights of {name} are not in the cache of huggingface_hub and cannot "
            f"be downloaded ({str(error).partition(chr(10))[0]}); fetch them on a machine that "
            "can and give them as a file, or take random:SEED for a trial without meaning"
        ) from error
    return state
