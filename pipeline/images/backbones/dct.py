"""The discrete cosine transform of a thumbnail, as an untrained one-layer network.

For near-duplicates: the cosine of two rows is the correlation of the thumbnails' gradients.
"""

import numpy as np
import torch
from torch import Tensor, nn

SIDE, FREQUENCIES = 32, 16
"""Side of the thumbnail in pixels, and number of lowest frequencies per axis."""

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
# Decimals on which different mathematical libraries agree, so that the hash is stable.
_DECIMALS = 6


def dct_network() -> nn.Module:
    """Return the network: (n, 3, 32, 32) RGB crops to (n, 255, 1, 1) coefficients."""
    return nn.Sequential(nn.Conv2d(3, FREQUENCIES**2 - 1, SIDE, bias=False))


def dct_weights() -> dict[str, Tensor]:
    """Return the weights of `dct_network`: one filter per frequency, row by row.

    Filter (u, v) is that of the orthonormal DCT-II of the grey image (Ahmed et al. 1974, eq. (1)),
    times sqrt(u^2 + v^2), the amplitude of a gradient. The mean, (0, 0), is left out, so that the
    cosine of two rows is invariant to brightness and contrast.
    """
    frequency, pixel = np.arange(FREQUENCIES), np.arange(SIDE)
    waves = np.sqrt(2 / SIDE) * np.cos(np.pi * np.outer(frequency, pixel + 0.5) / SIDE)
    waves[0] /= np.sqrt(2)
    amplitude = np.hypot(frequency[:, None], frequency)
    filters = np.einsum("uv,uy,vx,c->uvcyx", amplitude, waves, waves, np.array(_LUMA))
    rows = filters.reshape(FREQUENCIES**2, 3, SIDE, SIDE)[1:]
    return {"0.weight": torch.from_numpy(np.round(rows, _DECIMALS).astype(np.float32))}
