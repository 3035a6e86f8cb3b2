"""Feature scaling for heads: L2 normalisation or standardisation.

A closed-form head reads scaled rows (`UnitRows`). A network has scaling as its first layer, so that
the statistics of the training split are saved with the weights.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads.inputs.feature_rows import Doubles, Features, Rows, in_blocks
from pipeline.store.shards.row_keys import RowNumbers


def mean_and_scale(rows: Rows) -> tuple[Doubles, float]:
    """Return the mean vector (d,) float64 and the root mean square deviation from it.

    Rows (d,) are vectors; rows (..., d) are grids, of which each cell counts as one vector.
    """
    # One pass over blocks in float64, merged by the formula of Chan, Golub & LeVeque 1979.
    mean, scatter, seen = np.zeros(rows.row_shape[-1]), 0.0, 0
    for block in in_blocks(rows):
        wide = block.reshape(-1, mean.size).astype(np.float64)
        block_mean = wide.mean(axis=0)
        scatter += float(np.square(wide - block_mean).sum())
        scatter += float(np.square(block_mean - mean).sum()) * len(wide) * seen / (seen + len(wide))
        seen += len(wide)
        mean += (block_mean - mean) * (len(wide) / seen)
    return mean, float(np.sqrt(scatter / max(1, seen * mean.size)))


class UnitRows:
    """Rows that are L2-normalised, optionally after a transform; zero vectors stay zero."""

    def __init__(
        self, rows: Rows, change: Callable[[Features], Features | Doubles] | None = None
    ) -> None:
        """Wrap vectors (d,); `change` transforms (n, d) float32 before normalisation."""
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
        digest = hashlib.sha256()
        for block in in_blocks(self):
            digest.update(block.data)
        return digest.hexdigest()


def signed_roots(features: Features) -> Features:
    """Return sign(x) sqrt(|x|), which with L2 follows Perronnin et al. 2010, section 3.1."""
    roots: Features = np.copysign(np.sqrt(np.abs(features)), features)
    return roots


class UnitLength(nn.Module):
    """L2 normalisation of rows; zero vectors stay zero."""

    def forward(self, x: Tensor) -> Tensor:
        """Return unit vectors (n, d) of (n, d)."""
        return F.normalize(x, dim=1)


class UnitVectors(nn.Module):
    """`UnitRows` as a module, in float64: minus a centre or rooted, then L2-normalised."""

    centre: Tensor | None

    def __init__(self, centre: Tensor | None = None, rooted: bool = False) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self._rooted = rooted

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, d) float32 of (n, d)."""
        x = x.double() if self.centre is None else x.double() - self.centre
        if self._rooted:
            # The slope of a root at 0 is infinite, and infinity times 0 is NaN.
            x = torch.where(x == 0, 0.0, x.sign() * torch.where(x == 0, 1.0, x.abs()).sqrt())
        norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        # Not a smallest norm, which is 0 in the float32 of ONNX.
        return (x / torch.where(norms > 0, norms, 1.0)).float()


class Standardised(nn.Module):
    """Standardisation by the statistics of the training split, followed by other layers.

    Subtracts the mean vector and divides by one scalar, the root mean square deviation. Equivalent
    to `BatchNorm1d` with fixed statistics, but with one scale for all dimensions and without affine
    parameters. A grid counts as one vector per cell.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int, *layers: nn.Module) -> None:
        """Build the layers; standardisation of (n, inputs) is the identity until `fit`."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(()))
        self.layers = nn.Sequential(*layers)

    def fit(self, rows: Rows) -> None:
        """Set mean vector and scale to those of training features."""
        mean, scale = mean_and_scale(rows)
        self.mean.copy_(torch.from_numpy(mean))
        self.scale.fill_(scale or 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layers' output for standardised (..., inputs)."""
        standardised: Tensor = self.layers((x - self.mean) / self.scale)
        return standardised
