"""The backbones of the catalogue: torchvision, Caffe, Keras, EfficientNet-Lite and a DCT."""

from functools import partial

import numpy as np
import torch
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone, Library
from pipeline.images.backbones.caffe_networks import (
    CaffeNet,
    CaffeResNet,
    caffe_resnet_layer_names,
    without_biases,
)
from pipeline.images.backbones.torchvision_backbones import torchvision_network
from pipeline.images.backbones.xception import SameMaxPool, with_network_names, xception
from pipeline.images.engine.fuse import Tracing
from pipeline.images.layer_recipes import at_layer
from pipeline.images.recipes import Recipe, provider_of
from pipeline.images.recipes.by_name import PROVIDERS, catalogue_recipe
from pipeline.images.recipes.image_recipes import AT_OTHER_SIZES
from pipeline.images.recipes.layers import LayerName
from pipeline.store.errors import UnknownName

# Side of the DCT's thumbnail in pixels, and number of its lowest frequencies per axis.
_SIDE, _FREQUENCIES = 32, 16
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
# Decimals on which different mathematical libraries agree, so that the hash is stable.
_DECIMALS = 6


def backbone_named(name: str) -> Backbone:
    """Return a backbone by its name in a recipe: one of `BACKBONES`, of a library, or a guest."""
    if name in BACKBONES:
        return BACKBONES[name]
    if (provider := provider_of(name)) is None:
        raise UnknownName(f"no backbone is called {name!r}; install the package that registers it")
    backbone: Backbone = PROVIDERS.get(provider).backbone(name)
    return backbone


def _at_layer(name: str) -> Recipe:
    """Return the recipe "<recipe or backbone of the catalogue>[-<pool>][@<layer>]"."""
    parts = LayerName.parse(name)
    assert parts is not None  # by `provider_of`
    base = catalogue_recipe(str(parts._replace(layer=None))) or catalogue_recipe(parts.base)
    assert base is not None
    return at_layer(base, parts, BACKBONES[base.backbone], base.tap)


def _googlenet() -> nn.Module:
    # torchvision's published weights expect (x / 255 - 0.5) / 0.5; its own builder converts
    # from the ImageNet normalisation inside the network, which the recipe makes unnecessary.
    net = torchvision_network("googlenet", aux_logits=False, init_weights=False)()
    net.fc = nn.Identity()
    return net


def _vgg_layer_names(convolutions: tuple[int, ...]) -> dict[str, str]:
    """Return Caffe's names of VGG layers, and torchvision's before 2017, mapped to today's.

    `convolutions` counts those of each of the five blocks.
    """
    names, index = {}, 0
    for block, count in enumerate(convolutions, 1):
        for number in range(1, count + 1):
            names[f"conv{block}_{number}"] = f"features.{index}"
            index += 2
        index += 1
    names |= {"fc6": "classifier.0", "fc7": "classifier.3", "fc8": "classifier.6"}
    return names | {"classifier.1": "classifier.0", "classifier.4": "classifier.3"}


def _caffe_resnet(depth: int) -> Backbone:
    return Backbone(
        partial(CaffeResNet, depth), residual_norms="_branch2c",
        layer_names=caffe_resnet_layer_names(depth), merge=without_biases,
    )  # fmt: skip


def _efficientnet_lite(name: str, size: int | None = None) -> Backbone:
    """Return a Lite network that is padded for inputs of a size, by default its own."""
    methods, own = {"extract_features": "extract_features"}, {"image_size": size} if size else {}
    return Backbone(lambda: EfficientNet.from_name(name, **own), methods, residual_norms="._bn2")


def _dct_network() -> nn.Module:
    """Return an untrained one-layer network: (n, 3, 32, 32) RGB crops to (n, 255, 1, 1).

    The discrete cosine transform of a thumbnail, for near-duplicates: the cosine of two rows is the
    correlation of the thumbnails' gradients.
    """
    return nn.Sequential(nn.Conv2d(3, _FREQUENCIES**2 - 1, _SIDE, bias=False))


def _dct_weights() -> dict[str, Tensor]:
    """Return the weights of `_dct_network`: one filter per frequency, row by row.

    Filter (u, v) is that of the orthonormal DCT-II of the grey image (Ahmed et al. 1974, eq. (1)),
    times sqrt(u^2 + v^2), the amplitude of a gradient. The mean, (0, 0), is left out, so that the
    cosine of two rows is invariant to brightness and contrast.
    """
    frequency, pixel = np.arange(_FREQUENCIES), np.arange(_SIDE)
    waves = np.sqrt(2 / _SIDE) * np.cos(np.pi * np.outer(frequency, pixel + 0.5) / _SIDE)
    waves[0] /= np.sqrt(2)
    amplitude = np.hypot(frequency[:, None], frequency)
    filters = np.einsum("uv,uy,vx,c->uvcyx", amplitude, waves, waves, np.array(_LUMA))
    rows = filters.reshape(_FREQUENCIES**2, 3, _SIDE, _SIDE)[1:]
    return {"0.weight": torch.from_numpy(np.round(rows, _DECIMALS).astype(np.float32))}


_XCEPTION = Backbone(
    xception, residual_norms=".sepconv3_bn", heads=("predictions.", "dense"),
    merge=with_network_names, tracing=Tracing((SameMaxPool,)),
)  # fmt: skip
_ANY_EVEN = 224  # all multiples of 32 have the same padding
_LITES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
BACKBONES: dict[str, Backbone] = {
    "resnet152": Backbone(torchvision_network("resnet152"), residual_norms=".bn3"),
    **{f"resnet{depth}-caffe": _caffe_resnet(depth) for depth in (50, 101, 152)},
    "xception": _XCEPTION,
    "vgg19": Backbone(torchvision_network("vgg19"), layer_names=_vgg_layer_names((2, 2, 4, 4, 4))),
    "vgg16": Backbone(torchvision_network("vgg16"), layer_names=_vgg_layer_names((2, 2, 3, 3, 3))),
    "alexnet": Backbone(torchvision_network("alexnet")),
    "caffenet": Backbone(CaffeNet),
    "googlenet": Backbone(_googlenet, heads=("fc.", "aux1.", "aux2.")),
    **{name: _efficientnet_lite(name) for name in _LITES},
    **{even: _efficientnet_lite(name, _ANY_EVEN) for name, even in AT_OTHER_SIZES.items()},
    "dct": Backbone(_dct_network, pretrained=_dct_weights, cached=lambda weights: True),
}

PROVIDER = Library(_at_layer, BACKBONES.__getitem__)
