"""CaffeNet, Caffe's reference network: AlexNet with each pooling before its normalisation."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CaffeNet(nn.Module):
    """`bvlc_reference_caffenet` with Caffe's layer names.

    AlexNet on one GPU, but with convolutions in two groups, and with pooling before local response
    normalisation (torchvision's AlexNet has neither). Caffe's normalisation divides alpha by the
    window size, as torch's does. Dropout is left out. Input: (n, 3, 227, 227) BGR crops.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 11, stride=4)
        self.conv2 = nn.Conv2d(96, 256, 5, padding=2, groups=2)
        self.conv3 = nn.Conv2d(256, 384, 3, padding=1)
        self.conv4 = nn.Conv2d(384, 384, 3, padding=1, groups=2)
        self.conv5 = nn.Conv2d(384, 256, 3, padding=1, groups=2)
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
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
