"""Features on the scale that a head learns from: of unit length, or standardised.

A closed form is given scaled rows, `UnitRows`. A network has its scaling as its first layer, so
that the statistics of the training split are kept with what was learnt.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads.inputs.feature_rows import Doubles, Features, RowNumbers, Rows, in_blocks


def mean_and_scale(rows: Rows) -> tuple[Doubles, float]:
    """Return the mean row and the root mean square of what differs from it, over all numbers.

    One pass in blocks, merged by the formula of Chan, Golub & LeVeque 1979, in float64.

    Returns
    -------
    mean : (*row_shape) float64.
    scale : at least 0.
    """
    mean, scatter, seen = np.zeros(rows.row_shape), 0.0, 0
    for block in in_blocks(rows):
        wide = block.astype(np.float64)
        own = wide.mean(axis=0)
        scatter += float(np.square(wide - own).sum())
        scatter += float(np.square(own - mean).sum()) * len(wide) * seen / (seen + len(wide))
        seen += len(wide)
        mean += (own - mean) * (len(wide) / seen)
    return mean, float(np.sqrt(scatter / max(1, seen * mean.size)))


class UnitRows:
    """Vectors of unit length, perhaps after each was changed; zero vectors stay zero."""

    def __init__(
        self, rows: Rows, change: Callable[[Features], Features | Doubles] | None = None
    ) -> None:
        """Take vectors, and what changes (n, d) float32 of them, each by itself."""
        self._rows, self._change = rows, change
        self.row_shape: tuple[int, ...] = rows.row_shape

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, d) float32 of row numbers (n,); see `Rows.take`."""
        taken = self._rows.take(rows)
        changed = (self._change(taken) if self._change else taken).astype(np.float64)
        norms = np.linalg.norm(changed, axis=1, keepdims=True)
        return np.asarray(changed / np.where(norms > 0, norms, 1), np.float32)

    def digest(self) -> str:
        """Return the SHA-256 of the rows."""
        digest = hashlib.sha256()
        for block in in_blocks(self):
            digest.update(block.data)
        return digest.hexdigest()


def signed_roots(features: Features) -> Features:
    """Return the square root of each number's size, with its sign.

    At unit length it evens out how much single channels weigh (Perronnin et al. 2010, section
    3.1).
    """
    roots: Features = np.copysign(np.sqrt(np.abs(features)), features)
    return roots


class UnitLength(nn.Module):
    """Rows of unit length; zero vectors stay zero."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, d) of the same."""
        return F.normalize(x, dim=1)


class Standardised(nn.Module):
    """Layers that are given features less the training split's mean vector, over its one scale.

    Of grids, every cell is a vector, and the mean is over all cells.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int, *layers: nn.Module) -> None:
        """Leave features (n, inputs) as they are until `fit`."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(()))
        self.layers = nn.Sequential(*layers)

    def fit(self, rows: Rows) -> None:
        """Take the mean vector and the one scale of training features."""
        mean, scale = mean_and_scale(rows)
        self.mean.copy_(torch.from_numpy(mean.reshape(-1, len(self.mean)).mean(axis=0)))
        self.scale.fill_(scale or 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers' output for (..., inputs), standardised first."""
        standardised: Tensor = self.layers((x - self.mean) / self.scale)
        return standardised
