"""The networks that recipes name: torchvision's, CaffeNet, EfficientNet-Lite and timm's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torchvision
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

from pipeline.images.caffenet import CaffeNet
from pipeline.recipes import is_timm_model
from pipeline.recipes.timm import create_timm_model


@dataclass(frozen=True)
class Backbone:
    """A network's architecture, and what its weights are called elsewhere.

    Attributes
    ----------
    build : the whole network of torchvision or the package, with its classifier. It maps
        (n, 3, size, size) normalised crops to class scores.
    methods : taps that are no layer: their names, to the method of the network that gives them.
    residual_norms : name ending of the last batch norm of each residual branch.
    layer_names : what other files call a layer, to what the network calls it.
    heads : beginnings of the names of layers that are not built: files may have them in any
        shape or not at all.
    rewritable : whether the fast engine may fuse its layers.
    """

    build: Callable[[], nn.Module]
    methods: Mapping[str, str] = field(default_factory=dict)
    residual_norms: str = ""
    layer_names: Mapping[str, str] = field(default_factory=dict)
    heads: tuple[str, ...] = ()
    rewritable: bool = True


def backbone_named(name: str) -> Backbone:
    """Return the backbone that a recipe names: of `BACKBONES`, or a model of timm.

    Raises
    ------
    RecipeError
        timm is not installed or has no such model.
    """
    return _timm_backbone(name) if is_timm_model(name) else BACKBONES[name]


def _timm_backbone(name: str) -> Backbone:
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
    )


def _googlenet() -> nn.Module:
    # torchvision's published weights expect (x / 255 - 0.5) / 0.5; its own builder converts
    # from the ImageNet normalisation inside the network, which the recipe makes unnecessary.
    net = torchvision.models.googlenet(weights=None, aux_logits=False, init_weights=False)
    net.fc = nn.Identity()
    return net


def _vgg_layer_names(convolutions: tuple[int, ...]) -> dict[str, str]:
    """Return Caffe's names of VGG's layers, and those of torchvision before 2017, to today's.

    convolutions : of each of the five blocks.
    """
    names, index = {}, 0
    for block, count in enumerate(convolutions, 1):
        for number in range(1, count + 1):
            names[f"conv{block}_{number}"] = f"features.{index}"
            index += 2
        index += 1
    names |= {"fc6": "classifier.0", "fc7": "classifier.3", "fc8": "classifier.6"}
    return names | {"classifier.1": "classifier.0", "classifier.4": "classifier.3"}


BACKBONES: dict[str, Backbone] = {
    "resnet152": Backbone(torchvision.models.resnet152, residual_norms=".bn3"),
    "vgg19": Backbone(torchvision.models.vgg19, layer_names=_vgg_layer_names((2, 2, 4, 4, 4))),
    "vgg16": Backbone(torchvision.models.vgg16, layer_names=_vgg_layer_names((2, 2, 3, 3, 3))),
    "alexnet": Backbone(torchvision.models.alexnet),
    "caffenet": Backbone(CaffeNet),
    "googlenet": Backbone(_googlenet, heads=("fc.", "aux1.", "aux2.")),
    "efficientnet-lite0": Backbone(
        lambda: EfficientNet.from_name("efficientnet-lite0"),
        methods={"extract_features": "extract_features"},
        residual_norms="._bn2",
    ),
}
