"""C3D (Tran et al., ICCV 2015): eight 3-D convolutions and three fully connected layers."""

import torch
from torch import nn
from torch.nn import functional as F

# Channels and layers of the blocks, each followed by a pooling.
_BLOCKS = (
    (64, ("conv1",)),
    (128, ("conv2",)),
    (256, ("conv3a", "conv3b")),
    (512, ("conv4a", "conv4b")),
    (512, ("conv5a", "conv5b")),
)


class C3D(nn.Module):
    """The network for runs of 16 frames of 112 x 112 pixels, with Caffe's layer names."""

    def __init__(self, classes: int = 487) -> None:
        """Build the network, by default for the 487 classes of Sports-1M."""
        super().__init__()
        before = 3
        for width, layers in _BLOCKS:
            for name in layers:
                self.add_module(name, nn.Conv3d(before, width, 3, padding=1))
                before = width
        self.fc6, self.fc7 = nn.Linear(8192, 4096), nn.Linear(4096, 4096)
        self.fc8 = nn.Linear(4096, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return class scores (n, classes) of (n, 3, 16, 112, 112) runs."""
        for block, (_, layers) in enumerate(_BLOCKS):
            for name in layers:
                x = F.relu(self.get_submodule(name)(x))
            # The first pooling keeps all frames; the last one pads odd rows and columns.
            kernel = (1 if block == 0 else 2, 2, 2)
            x = F.max_pool3d(x, kernel, padding=(0, 1, 1) if block == 4 else 0)
        x = F.relu(self.fc6(x.flatten(1)))
        return self.fc8(F.relu(self.fc7(x)))
