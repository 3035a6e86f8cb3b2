"""A network in the place of EfficientNet-Lite0, for tests of what is done with its rows.

It has the shapes of the real one and takes no time: a test of files, commands or workers would
otherwise spend its seconds on convolutions, which tests/images compares with other libraries.
"""

from dataclasses import replace

from torch import Tensor, nn

from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.networks.random_weights import seeded_state

NAME = "efficientnet-lite0"


class _Narrow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.conv = nn.AvgPool2d(32), nn.Conv2d(3, 1280, 1)

    def extract_features(self, x: Tensor) -> Tensor:
        """Return (n, 1280, 7, 7) for crops of 224 pixels."""
        features: Tensor = self.conv(self.pool(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, 1280)."""
        return self.extract_features(x).mean(dim=(2, 3))


NARROW = replace(
    BACKBONES[NAME],
    build=_Narrow,
    pretrained=lambda: seeded_state(_Narrow(), 99, ""),
    cached=lambda weights: True,
)
"""The definition of the network, to be set as `BACKBONES[NAME]`; its own weights are seeded."""
