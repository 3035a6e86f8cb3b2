"""The networks, each as a function from normalised crops to the recipe's tap."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torchvision
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.recipes import Recipe


@dataclass(frozen=True)
class Backbone:
    """A network's architecture and its tap.

    Attributes
    ----------
    build : the whole network of torchvision or the package, with its classifier.
    tap : from the network and (n, 3, size, size) float crops to (n, channels, h, w) maps or
        (n, channels) rows, before the ReLU if the recipe's activation is "none".
    residual_norms : name ending of the last batch norm of each residual branch.
    """

    build: Callable[[], nn.Module]
    tap: Callable[[Any, Tensor, Recipe], Tensor]
    residual_norms: str = ""


def _resnet_layer4(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    for name in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
        x = getattr(net, name)(x)
    return x


def _vgg_fc7(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    # classifier: 0 fc6, 1 ReLU, 2 dropout, 3 fc7, 4 ReLU in place. Stopping at 3 keeps the
    # values before the ReLU from being overwritten.
    x = net.avgpool(net.features(x))
    x = net.classifier[:4](torch.flatten(x, 1))
    return F.relu(x) if recipe.activation == "relu" else x


def _lite_features(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    return net.extract_features(x)


BACKBONES: dict[str, Backbone] = {
    "resnet152": Backbone(torchvision.models.resnet152, _resnet_layer4, ".bn3"),
    "vgg19": Backbone(torchvision.models.vgg19, _vgg_fc7),
    "efficientnet-lite0": Backbone(
        lambda: EfficientNet.from_name("efficientnet-lite0"), _lite_features, "._bn2"
    ),
}
