"""Narrow networks with the layers of torchvision's and Caffe's, for comparisons in little time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.vgg import VGG, make_layers
from torchvision.models.vision_transformer import VisionTransformer

from pipeline.images.backbones.caffe_networks import CaffeNet
from pipeline.images.backbones.known_backbones import BACKBONES

_LAYERS = (4, "M", 8, "M", 8, "M", 16, "M", 16, "M")


def narrow_vgg(
    layers: Sequence[int | str] = _LAYERS, hidden: int = 256, row: int = 4096, classes: int = 10
) -> VGG:
    net, channels = VGG(make_layers(list(layers)), init_weights=False), int(layers[-2])
    net.classifier[0], net.classifier[3] = nn.Linear(channels * 49, hidden), nn.Linear(hidden, row)
    net.classifier[6] = nn.Linear(row, classes)
    return net


def narrow_alexnet() -> models.AlexNet:
    net = models.AlexNet()
    net.classifier[1], net.classifier[4] = nn.Linear(256 * 36, 256), nn.Linear(256, 4096)
    return net


def narrow_caffenet() -> CaffeNet:
    net = CaffeNet()
    net.fc6, net.fc7 = nn.Linear(256 * 36, 256), nn.Linear(256, 4096)
    return net


def narrow_resnet() -> ResNet:
    return ResNet(Bottleneck, [1, 1, 1, 1], width_per_group=8)


_NARROW: dict[str, Callable[[], nn.Module]] = {
    "vgg19": narrow_vgg, "vgg16": narrow_vgg, "resnet152": narrow_resnet,
    "alexnet": narrow_alexnet, "caffenet": narrow_caffenet,
}  # fmt: skip


def use_narrow_networks(patch: pytest.MonkeyPatch) -> None:
    """Put narrow networks of the same layers in the place of the large ones."""
    for name, build in _NARROW.items():
        patch.setitem(BACKBONES, name, replace(BACKBONES[name], build=build))


def use_narrow_torchvision(patch: pytest.MonkeyPatch) -> None:
    """Put narrow networks in the place of torchvision's resnet18 and vit_b_32."""
    patch.setattr(models, "resnet18", _narrow_resnet18)
    patch.setattr(models, "vit_b_32", _narrow_vit)


def _narrow_resnet18(weights: None) -> ResNet:
    net = ResNet(BasicBlock, [2, 2, 2, 2])
    net.inplanes, net.fc = 64, nn.Linear(128, 10)
    # Of 128 channels, from which on the fast engine has another algorithm for 3 x 3 kernels.
    net.layer2, net.layer3, net.layer4 = (
        net._make_layer(BasicBlock, 128, 2, stride=2) for _ in range(3)
    )
    return net


def _narrow_vit(weights: None, image_size: int) -> VisionTransformer:
    return VisionTransformer(image_size, 32, num_layers=3, num_heads=2, hidden_dim=32, mlp_dim=64)


def filled(build: Callable[[], Any], state: dict[str, Tensor]) -> Any:
    """Return a network with these weights."""
    with torch.device("meta"):
        net = build()
    net.load_state_dict(state, assign=True)
    return net.eval()
