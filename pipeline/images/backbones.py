"""The networks, each as a function from normalised crops to the recipe's tap."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torchvision
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.caffenet import CaffeNet
from pipeline.recipes import Recipe, RecipeError, is_timm_model
from pipeline.recipes.timm import create_timm_model


@dataclass(frozen=True)
class Backbone:
    """A network's architecture and its tap.

    Attributes
    ----------
    build : the whole network of torchvision or the package, with its classifier.
    tap : from the network and (n, 3, size, size) float crops to (n, channels, h, w) maps or
        (n, channels) rows, before the ReLU if the recipe's activation is "none".
    residual_norms : name ending of the last batch norm of each residual branch.
    layer_names : what other files call a layer, to what the network calls it.
    heads : beginnings of the names of layers after the tap, which are not built: files may have
        them in any shape or not at all.
    """

    build: Callable[[], nn.Module]
    tap: Callable[[Any, Tensor, Recipe], Tensor]
    residual_norms: str = ""
    layer_names: Mapping[str, str] = field(default_factory=dict)
    heads: tuple[str, ...] = ()


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
    return Backbone(build, _timm_row, heads=tuple(f"{head}." for head in heads))


def _timm_row(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    rows: Tensor = net(x)
    if tuple(rows.shape[1:]) != recipe.shape:
        raise RecipeError(
            f"{recipe.name} gives rows of {tuple(rows.shape[1:])}, not of {recipe.shape} as timm "
            "says of it; such a model has no pooled row"
        )
    return rows


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


def _alexnet_fc7(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    # classifier: 0 dropout, 1 fc6, 2 ReLU, 3 dropout, 4 fc7, 5 ReLU.
    x = net.avgpool(net.features(x))
    x = net.classifier[:5](torch.flatten(x, 1))
    return F.relu(x) if recipe.activation == "relu" else x


def _caffenet_fc7(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    x = net.fc7_of(x)
    return F.relu(x) if recipe.activation == "relu" else x


def _googlenet_last_inception(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    # The classifier is no more than average pooling, dropout and a linear map after these.
    for name, layer in net.named_children():
        if name not in ("avgpool", "dropout", "fc"):
            x = layer(x)
    return x


def _lite_features(net: Any, x: Tensor, recipe: Recipe) -> Tensor:
    return net.extract_features(x)


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
    "resnet152": Backbone(torchvision.models.resnet152, _resnet_layer4, ".bn3"),
    "vgg19": Backbone(
        torchvision.models.vgg19, _vgg_fc7, layer_names=_vgg_layer_names((2, 2, 4, 4, 4))
    ),
    "vgg16": Backbone(
        torchvision.models.vgg16, _vgg_fc7, layer_names=_vgg_layer_names((2, 2, 3, 3, 3))
    ),
    "alexnet": Backbone(torchvision.models.alexnet, _alexnet_fc7),
    "caffenet": Backbone(CaffeNet, _caffenet_fc7),
    "googlenet": Backbone(_googlenet, _googlenet_last_inception, heads=("fc.", "aux1.", "aux2.")),
    "efficientnet-lite0": Backbone(
        lambda: EfficientNet.from_name("efficientnet-lite0"), _lite_features, "._bn2"
    ),
}
