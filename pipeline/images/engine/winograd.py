"""3 x 3 convolutions with a quarter of the multiplications: Winograd's F(4 x 4, 3 x 3).

Lavin & Gray 2016 ("Fast algorithms for convolutional neural networks"), eq. (8):
Y = A' [(G g G') * (B' d B)] A for 6 x 6 input tiles d and 4 x 4 output tiles Y. The matrices are
those of the Toom-Cook construction in exact fractions. Deviation: the points are 0, 1, -1, 1/2, -2
in place of 0, 1, -1, 2, -2, for a smaller relative error of a float32 layer: 1.2e-6 to 1.4e-6 in
place of 1.7e-6 to 2.2e-6 (direct convolution: 4e-7 to 8e-7). Over a whole network the errors
differ less (`python -m bench.engine` prints all of these).
"""

import math
import threading
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.images.engine.fuse import Activation, Convolution

_POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-2))
_OUT, _KERNEL = 4, 3
_TILE = _OUT + _KERNEL - 1


def applicable(convolution: Convolution) -> bool:
    """Return whether a convolution is 3 x 3, dense, and keeps the size of its input."""
    c = convolution
    geometry = (list(c.weight.shape[2:]), c.padding, c.stride, c.dilation, c.groups)
    return geometry == ([3, 3], [1, 1], [1, 1], [1, 1], 1)


class _Scratch(threading.local):
    """Scratch memory that the layers of one thread reuse."""

    # The system would map, zero and unmap fresh tensors of this size at every call.
    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """Return the named float32 buffer in a shape, enlarged if too small."""
        size = math.prod(shape)
        if name not in self._buffers or self._buffers[name].numel() < size:
            # For use inside and outside inference mode.
            with torch.inference_mode(False):
                self._buffers[name] = torch.empty(size)
        return self._buffers[name][:size].view(shape)


_SCRATCH = _Scratch()


class WinogradConvolution(nn.Module):
    """A float32 3 x 3 convolution that keeps the size of its input, with its activation."""

    def __init__(self, convolution: Convolution, activation: Activation) -> None:
        super().__init__()
        output, kernel, tile = (torch.from_numpy(matrix) for matrix in toom_cook())
        # Transformed in float64, so that the weights are rounded once.
        weight = torch.einsum("ia,kcab,jb->ijck", kernel, convolution.weight.double(), kernel)
        self.weight = nn.Buffer(weight.flatten(0, 1).float().contiguous())
        bias = convolution.bias
        self.bias = nn.Buffer(torch.zeros(weight.shape[3]) if bias is None else bias.float())
        self.tile, self.output = nn.Buffer(tile.float()), nn.Buffer(output.float())
        self.activation, self.scalars = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return activation(convolution(x)) of (n, c, h, w) maps, channels-last."""
        images, channels, height, width = x.shape
        down, across = -(-height // _OUT), -(-width // _OUT)
        count, filters = images * down * across, self.weight.shape[2]
        padded = _SCRATCH.take("padded", images, _OUT * down + 2, _OUT * across + 2, channels)
        # The buffer has the values of an earlier call.
        padded.zero_()
        padded[:, 1 : height + 1, 1 : width + 1] = x.permute(0, 2, 3, 1)
        line = padded.shape[2] * channels
        # Buffers: "one" has the tiles, then the products; "two" the half-done transforms;
        # "three" their results.
        tiles = _SCRATCH.take("one", _TILE, _TILE, images, down, across, channels)
        # Overlapping tiles as a view, ordered by the place in the tile: the transforms then are a
        # few large matrix products in place of a small one per tile.
        strides = (line, channels, padded.shape[1] * line, _OUT * line, _OUT * channels, 1)
        tiles.copy_(padded.as_strided(tiles.shape, strides))
        spectrum = _both_ways(self.tile, tiles, count * channels)
        products = _SCRATCH.take("one", _TILE**2, count, filters)
        torch.bmm(spectrum.view(_TILE**2, count, channels), self.weight, out=products)
        y = _both_ways(self.output, products, count * filters)
        y = y.view(_OUT, _OUT, images, down, across, filters).permute(2, 3, 0, 4, 1, 5)
        # Not in scratch memory, which the next layer overwrites.
        result = torch.empty(y.shape)
        torch.add(y, self.bias, out=result)
        if self.activation == "relu":
            result.relu_()
        elif self.activation == "hardtanh":
            result.clamp_(*self.scalars)
        whole = result.view(images, _OUT * down, _OUT * across, filters)
        return whole[:, :height, :width].permute(0, 3, 1, 2)


def _both_ways(matrix: Tensor, tiles: Tensor, size: int) -> Tensor:
    """Multiply rows and columns of (6, 6, ...) tiles by a matrix (m, 6): (m, m, size), scratch."""
    rows = len(matrix)
    half = _SCRATCH.take("two", rows, _TILE * size)
    torch.mm(matrix, tiles.view(_TILE, -1), out=half)
    product = _SCRATCH.take("three", rows, rows, size)
    torch.bmm(matrix.expand(rows, -1, -1), half.view(rows, _TILE, size), out=product)
    return product


def toom_cook() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices A', G and B' of F(4, 3): (4, 6), (6, 3) and (6, 6) float64."""
    # Toom-Cook: polynomials are multiplied by their values at five points and at infinity.
    differences = [
        _product([point - other for other in _POINTS if other != point]) for point in _POINTS
    ]
    output = [
        [point**row for point in _POINTS] + [Fraction(row == _OUT - 1)] for row in range(_OUT)
    ]
    kernel = [
        [point**power / difference for power in range(_KERNEL)]
        for point, difference in zip(_POINTS, differences, strict=True)
    ] + [[Fraction(power == _KERNEL - 1) for power in range(_KERNEL)]]
    tile = [
        [*_with_roots([other for other in _POINTS if other != point]), Fraction(0)]
        for point in _POINTS
    ] + [_with_roots(list(_POINTS))]
    return tuple(  # type: ignore[return-value]
        np.array([[float(value) for value in row] for row in matrix])
        for matrix in (output, kernel, tile)
    )


def _product(factors: list[Fraction]) -> Fraction:
    product = Fraction(1)
    for factor in factors:
        product *= factor
    return product


def _with_roots(roots: list[Fraction]) -> list[Fraction]:
    """Return the coefficients of the monic polynomial with these roots, lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [
            high - root * low
            for high, low in zip(shifted, [*coefficients, Fraction(0)], strict=True)
        ]
    return coefficients
