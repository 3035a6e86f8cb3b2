"""C3D (Tran et al., ICCV 2015): eight 3-D convolutions and three fully connected layers."""

import torch
from torch import nn
from torch.nn import functional as F


class C3D(nn.Module):
    """The network for runs of 16 frames of 112 x 112 pixels, with Caffe's layer names."""

    def __init__(self, classes: int = 487) -> None:
        """Build the network, by default for the 487 classes of Sports-1M."""
        super().__init__()
        widths = {
            "conv1": (3, 64),
            "conv2": (64, 128),
            "conv3a": (128, 256),
            "conv3b": (256, 256),
            "conv4a": (256, 512),
            "conv4b": (512, 512),
            "conv5a": (512, 512),
            "conv5b": (512, 512),
        }
        for name, (channels, width) in widths.items():
            self.add_module(name, nn.Conv3d(channels, width, 3, padding=1))
        self.fc6, self.fc7, self.fc8 = (
            nn.Linear(8192, 4096),
            nn.Linear(4096, 4096),
            nn.Linear(4096, classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return class scores (n, classes) of (n, 3, 16, 112, 112) runs."""
        for block, layers in enumerate(
            (
                ("conv1",),
                ("conv2",),
                ("conv3a", "conv3b"),
                ("conv4a", "conv4b"),
                ("conv5a", "conv5b"),
            )
        ):
            for name in layers:
                x = F.relu(self.get_submodule(name)(x))
            # The first pooling keeps all frames; the last one pads odd rows and columns.
            kernel = (1 if block == 0 else 2, 2, 2)
            x = F.max_pool3d(x, kernel, padding=(0, 1, 1) if block == 4 else 0)
        x = F.relu(self.fc6(x.flatten(1)))
        return self.fc8(F.relu(self.fc7(x)))
