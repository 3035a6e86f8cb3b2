"""Caffe's ResNet-50 with few channels, and its tensors under Caffe's own names."""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from pipeline.images.backbones import caffe_networks
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.recipes import RECIPES
from pipeline.images.weights import load_weights

# An eighth to a quarter of its channels; the last are many enough for Winograd's algorithm.
WIDTHS = (16, 32, 64, 128)


def narrow_state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Return weights of a narrow ResNet-50, and put it in the place of the large one."""

    def build() -> nn.Module:
        with patch.object(caffe_networks, "_WIDTHS", WIDTHS):
            return caffe_networks.CaffeResNet(50)

    name = "resnet50-caffe"
    monkeypatch.setitem(BACKBONES, name, replace(BACKBONES[name], build=build))
    return load_weights(RECIPES[f"{name}-pool"], "random:0").state


def as_caffe(state: dict[str, Tensor], biased: bool = False) -> dict[str, Tensor]:
    """Return a network's state by Caffe's names, with a bias in conv1 as ResNet-50 has one."""
    file = {}
    for key, value in state.items():
        if key.startswith("bn") and key.endswith(("weight", "bias")):
            key = "scale" + key.removeprefix("bn")
        if not key.endswith("num_batches_tracked"):
            file[key] = value
    if biased:
        file["conv1.bias"] = torch.full((64,), 0.25)
        file["bn_conv1.running_mean"] = file["bn_conv1.running_mean"] + 0.25
    return file
