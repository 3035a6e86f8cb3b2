"""Networks as in Caffe: its reference network, and He et al.'s ResNet-50, -101 and -152.

torchvision's networks differ: its AlexNet has neither groups nor normalisation; a stage of its
ResNets halves the map in the 3 x 3 convolution, and their first pooling is padded.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Number of blocks in stages 2 to 5, by depth.
_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4


class CaffeNet(nn.Module):
    """`bvlc_reference_caffenet` with Caffe's layer names.

    AlexNet on one GPU, but with convolutions in two groups, and with pooling before local response
    normalisation. Dropout is left out. Input: (n, 3, 227, 227) BGR crops.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 11, stride=4)
        self.conv2 = nn.Conv2d(96, 256, 5, padding=2, groups=2)
        self.conv3 = nn.Conv2d(256, 384, 3, padding=1)
        self.conv4 = nn.Conv2d(384, 384, 3, padding=1, groups=2)
        self.conv5 = nn.Conv2d(384, 256, 3, padding=1, groups=2)
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        # Caffe divides alpha by the window size, as torch does.
        self.norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)
        self.fc6 = nn.Linear(256 * 6 * 6, 4096)
        self.fc7 = nn.Linear(4096, 4096)
        self.fc8 = nn.Linear(4096, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, 1000) class scores before the softmax."""
        x = self.norm(self.pool(F.relu(self.conv1(x))))
        x = self.norm(self.pool(F.relu(self.conv2(x))))
        x = F.relu(self.conv4(F.relu(self.conv3(x))))
        x = self.pool(F.relu(self.conv5(x)))
        x = F.relu(self.fc6(torch.flatten(x, 1)))
        return self.fc8(F.relu(self.fc7(x)))


class CaffeResNet(nn.Module):
    """A residual network of bottlenecks with Caffe's layer names, for (n, 3, h, w) BGR crops.

    A norm `bn<x>` merges Caffe's two layers `bn<x>` (statistics) and `scale<x>` (scale and
    offset). Convolutions have no biases; `without_biases` moves those of files.
    """

    def __init__(self, depth: int) -> None:
        """Build the layers of depth 50, 101 or 152."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn_conv1 = nn.BatchNorm2d(64)
        self.conv1_relu = nn.ReLU(inplace=True)
        # Caffe rounds the number of windows up: the last ones extend beyond the map, but start
        # inside it.
        self.pool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self._blocks = tuple(_block_names(depth))
        channels = 64
        for name in self._blocks:
            stage, first = int(name[0]), name[1:] == "a"
            width, stride = _WIDTHS[stage - 2], 2 if first and stage > 2 else 1
            if first:
                self._add(f"{name}_branch1", channels, _EXPANSION * width, 1, stride)
            self._add(f"{name}_branch2a", channels, width, 1, stride)
            self.add_module(f"res{name}_branch2a_relu", nn.ReLU(inplace=True))
            self._add(f"{name}_branch2b", width, width, 3)
            self.add_module(f"res{name}_branch2b_relu", nn.ReLU(inplace=True))
            channels = _EXPANSION * width
            self._add(f"{name}_branch2c", width, channels, 1)
            self.add_module(f"res{name}_relu", nn.ReLU(inplace=True))
        self.pool5 = nn.AdaptiveAvgPool2d(1)
        self.fc1000 = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, 1000) class scores before the softmax."""
        x = self.pool1(self.conv1_relu(self.bn_conv1(self.conv1(x))))
        for name in self._blocks:
            shortcut = self._norm_of(f"{name}_branch1", x) if name[1:] == "a" else x
            for branch in (f"{name}_branch2a", f"{name}_branch2b"):
                x = self.get_submodule(f"res{branch}_relu")(self._norm_of(branch, x))
            x = self.get_submodule(f"res{name}_relu")(
                shortcut + self._norm_of(f"{name}_branch2c", x)
            )
        return self.fc1000(self.pool5(x).flatten(1))

    def _add(self, name: str, channels: int, width: int, kernel: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
        self.add_module(f"res{name}", convolution)
        self.add_module(f"bn{name}", nn.BatchNorm2d(width))

    def _norm_of(self, name: str, x: Tensor) -> Tensor:
        y: Tensor = self.get_submodule(f"bn{name}")(self.get_submodule(f"res{name}")(x))
        return y


def caffe_resnet_layer_names(depth: int) -> dict[str, str]:
    """Return the Caffe layer names that differ from a `CaffeResNet`'s, mapped to its own."""
    branches = [
        f"{name}_branch{k}" for name in _block_names(depth) for k in ("1", "2a", "2b", "2c")
    ]
    return {f"scale{branch}": f"bn{branch}" for branch in ("_conv1", *branches)}


def without_biases(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's tensors with each convolution's bias moved into the following norm."""
    # Caffe's ResNet-50 has a bias in conv1, and conversions to Keras have one in every convolution,
    # all within 1e-8 of 0. A norm subtracts its mean, so subtracting the bias from it is the same.
    merged = dict(tensors)
    for key, bias in tensors.items():
        layer = key.removesuffix(".bias")
        norm = "bn_conv1" if layer == "conv1" else layer.replace("res", "bn")
        mean = f"{norm}.running_mean"
        if key.endswith(".bias") and norm != layer and mean in tensors:
            merged[mean] = tensors[mean] - bias
            del merged[key]
    return merged


def _block_names(depth: int) -> Iterator[str]:
    """Yield "2a", "2b", ... "5c"; stages with many blocks have "3a", "3b1", "3b2", ..."""
    for stage, count in enumerate(_BLOCKS[depth], 2):
        for number in range(count):
            letters = depth == 50 or stage in (2, 5)
            yield f"{stage}{'abcdef'[number] if letters else f'b{number}' if number else 'a'}"
