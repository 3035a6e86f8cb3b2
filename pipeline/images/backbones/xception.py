"""Xception as in Keras (Chollet 2017), with TensorFlow's padding, and the names of its weights."""

import re
from collections import OrderedDict
from functools import cache

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.backbones.backbone import outline_of

# Channels of the separable convolutions of blocks 2 to 13, and of block 14.
_WIDTHS = ((128, 128), (256, 256), (728, 728), *8 * [(728, 728, 728)], (728, 1024))
_LAST = (1536, 2048)
# Keras numbers the layers that have no name of their own; before version 2, it had other words.
_NUMBERED = {
    "conv": re.compile(r"conv(?:olution)?_?2d(?:_(\d+))?"),
    "sepconv": re.compile(r"separable_?conv(?:olution)?_?2d(?:_(\d+))?"),
    "bn": re.compile(r"batch_?normalization(?:_(\d+))?"),
}


class SameMaxPool(nn.MaxPool2d):
    """3 x 3 pooling of stride 2 with TensorFlow's padding, by the parity of each side."""

    def __init__(self) -> None:
        super().__init__(3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, channels, ceil(h / 2), ceil(w / 2))."""
        # An odd side is padded at both ends, an even one at its end, as by rounding up.
        return F.max_pool2d(x, 3, 2, (x.shape[2] % 2, x.shape[3] % 2), ceil_mode=True)


class _Separable(nn.Sequential):
    """A filter for each channel, then a convolution across channels, without biases."""

    def __init__(self, channels: int, width: int) -> None:
        depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        pointwise = nn.Conv2d(channels, width, 1, bias=False)
        super().__init__(OrderedDict(depthwise=depthwise, pointwise=pointwise))


class _Residual(nn.Module):
    """Separable convolutions, added to their input, or to a convolution of it if they halve it."""

    def __init__(self, channels: int, widths: tuple[int, ...], relu_first: bool) -> None:
        super().__init__()
        layers = _separables(channels, widths, relu_first)
        self.shortcut: nn.Module | None = None
        if channels != widths[-1]:
            conv = nn.Conv2d(channels, widths[-1], 1, stride=2, bias=False)
            self.shortcut = nn.Sequential(OrderedDict(conv=conv, bn=_norm(widths[-1])))
            layers["pool"] = SameMaxPool()
        self.branch = nn.Sequential(layers)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.branch(x)
        return y + (x if self.shortcut is None else self.shortcut(x))


def xception() -> nn.Sequential:
    """Return the network without its top: (n, 3, h, w) RGB crops to the last map after the ReLU."""
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    blocks["block1"] = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 32, 3, stride=2, bias=False), conv1_bn=_norm(32),
            conv1_act=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(32, 64, 3, bias=False), conv2_bn=_norm(64),
            conv2_act=nn.ReLU(inplace=True),
        )
    )  # fmt: skip
    channels = 64
    for number, widths in enumerate(_WIDTHS, 2):
        # The input of block 2 has had its ReLU.
        blocks[f"block{number}"] = _Residual(channels, widths, relu_first=number > 2)
        channels = widths[-1]
    last = _separables(channels, _LAST, relu_first=False)
    blocks["block14"] = nn.Sequential(last | OrderedDict(act=nn.ReLU(inplace=True)))
    return nn.Sequential(blocks)


def _separables(
    channels: int, widths: tuple[int, ...], relu_first: bool
) -> OrderedDict[str, nn.Module]:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, width in enumerate(widths, 1):
        if number > 1 or relu_first:
            # The input of a block is added to its output, and so not overwritten.
            layers[f"sepconv{number}_act"] = nn.ReLU(inplace=number > 1)
        layers[f"sepconv{number}"] = _Separable(channels, width)
        layers[f"sepconv{number}_bn"] = _norm(width)
        channels = width
    return layers


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def with_network_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's tensors, "<Keras's layer>.<parameter>", by the network's names.

    Numbered layers are, in order, those of their kind without a name in the file: the shortcuts, or
    in Keras's own file, which is older than version 2, all.
    """
    found = {key.partition(".")[0] for key in tensors}
    names = {layer.replace(".branch", "").replace(".", "_"): layer for layer in _layers()}
    unnamed = [layer for keras, layer in names.items() if keras not in found]
    for kind, pattern in _NUMBERED.items():
        numbered = [match for layer in found if (match := pattern.fullmatch(layer))]
        ordered = [match[0] for match in sorted(numbered, key=lambda match: int(match[1] or 0))]
        places = [layer for layer in unnamed if _kind(layer) == kind]
        if len(ordered) == len(places):
            names |= dict(zip(ordered, places, strict=True))
    renamed = {}
    for key, value in tensors.items():
        layer, dot, parameter = key.partition(".")
        renamed[names.get(layer, layer) + dot + parameter] = value
    return renamed


@cache
def _layers() -> list[str]:
    """Return the names of the layers with weights, in the order in which Keras creates them."""
    parts = (".depthwise", ".pointwise")
    return [
        name
        for name, module in outline_of(xception).named_modules()
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d | _Separable) and not name.endswith(parts)
    ]


def _kind(layer: str) -> str:
    return "bn" if layer.endswith("bn") else "sepconv" if "sepconv" in layer else "conv"
