"""Fast CPU layers: oneDNN's fused convolutions, and Winograd's algorithm where it is faster.

Activations are channels-last, weights are in oneDNN's own layout, and the operations after a
convolution run while its results are in registers. This nearly saturates the arithmetic units
(`python -m bench.engine` prints GFLOP/s), so that a further speedup needs fewer multiplications.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.engine.fuse import Activation, Convolution, LinearActivation
from pipeline.images.engine.winograd import WinogradConvolution, applicable

# With this many input and output channels, Winograd's transforms cost less than they save.
_WINOGRAD_CHANNELS = 128
# Cost of a multiplication relative to a direct convolution, about, at 256 and 512 channels; the
# inverse of the column `Wino/fused` of `python -m bench.engine`.
_WINOGRAD_COST = 0.55


class OneDnnConvolution(nn.Module):
    """A convolution, an optional addition and an optional activation, in one pass."""

    def __init__(
        self, convolution: Convolution, activation: Activation, dtype: torch.dtype
    ) -> None:
        super().__init__()
        c = convolution
        self.weight = nn.Buffer(c.weight.to(dtype))
        self.bias = None if c.bias is None else nn.Buffer(c.bias.to(dtype))
        self.padding, self.rest = c.padding, (c.stride, c.dilation, c.groups)
        self.activation, self.scalars = activation
        self._packed: dict[tuple[int, ...], Tensor] = {}

    def forward(
        self, x: Tensor, other: Tensor | None = None, padding: list[int] | None = None
    ) -> Tensor:
        """Return activation(convolution(x) [+ other]), written into `other`.

        `x` and `other` are (n, c, h, w), channels-last; `padding`, [rows, columns] of zeros,
        replaces the convolution's own.
        """
        # oneDNN's best weight layout depends on the input size, and any other would be converted at
        # every call, so one copy per size is cached. Two threads may both pack one: equal copies.
        geometry = (padding or self.padding, *self.rest)
        key = (*x.shape, *geometry[0])
        weight = self._packed.get(key)
        if weight is None:
            weight = torch.ops.mkldnn._reorder_convolution_weight(
                self.weight, *geometry, list(x.shape)
            )
            self._packed[key] = weight
        if other is None:
            return torch.ops.mkldnn._convolution_pointwise(
                x, weight, self.bias, *geometry, self.activation, self.scalars, ""
            )
        if other.shape != self._shape_of_result(x, geometry[0]):
            # An addition with broadcasting.
            y = torch.ops.mkldnn._convolution_pointwise(
                x, weight, self.bias, *geometry, "none", [], ""
            )
            return F.relu(y + other) if self.activation == "relu" else y + other
        # This operator wants None where the one above wants "none".
        activation = None if self.activation == "none" else self.activation
        return torch.ops.mkldnn._convolution_pointwise_.binary(
            other, x, weight, self.bias, *geometry, "add", 1.0, activation, self.scalars, ""
        )

    def _shape_of_result(self, x: Tensor, padding: list[int]) -> tuple[int, ...]:
        stride, dilation, _ = self.rest
        sides = [
            (size + 2 * zeros - step * (kernel - 1) - 1) // jump + 1
            for size, zeros, step, kernel, jump in zip(
                x.shape[2:], padding, dilation, self.weight.shape[2:], stride, strict=True
            )
        ]
        return (len(x), len(self.weight), *sides)


class WholeOrPart(nn.Module):
    """A convolution by Winograd's algorithm for whole maps, and direct for other paddings."""

    def __init__(self, convolution: Convolution, activation: Activation) -> None:
        super().__init__()
        self.whole = WinogradConvolution(convolution, activation)
        self.part = OneDnnConvolution(convolution, activation, torch.float32)

    def forward(
        self, x: Tensor, other: Tensor | None = None, padding: list[int] | None = None
    ) -> Tensor:
        """Return activation(convolution(x) [+ other])."""
        # `WinogradConvolution` pads every side with one zero and cannot add.
        if other is None and padding is None:
            y: Tensor = self.whole(x)
            return y
        return self.part(x, other, padding)


class OneDnnLinear(nn.Module):
    """A fully connected layer with activation; only the packed weights are kept."""

    def __init__(self, linear: nn.Linear, activation: LinearActivation, dtype: torch.dtype) -> None:
        super().__init__()
        name, _, formula = activation.partition(" ")
        # oneDNN calls exact GELU "none".
        self.activation: tuple[str, list[float], str] = (
            name,
            [],
            formula or ("none" if name == "gelu" else ""),
        )
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype))
        self.bias = None if linear.bias is None else nn.Buffer(linear.bias.detach().to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return activation(x W' + b) of (n, features) rows."""
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, *self.activation)


class OneDnnLayers:
    """Layers for `pipeline.images.engine.fuse.rewrite`, in float32 or bfloat16."""

    pads_depthwise = True

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    @staticmethod
    def usable(dtype: torch.dtype) -> bool:
        """Return whether oneDNN has kernels of this dtype for this processor."""
        if not torch.backends.mkldnn.is_available():
            return False
        if dtype == torch.bfloat16:
            return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        return dtype == torch.float32

    def convolution(self, convolution: Convolution, activation: Activation) -> nn.Module:
        """Return a `OneDnnConvolution`, or a `WholeOrPart` where faster."""
        if self.whole_map_cost(convolution) < 1:
            return WholeOrPart(convolution, activation)
        return OneDnnConvolution(convolution, activation, self._dtype)

    def whole_map_cost(self, convolution: Convolution) -> float:
        """Return the cost of a multiplication on a whole map, relative to one on a strip."""
        many = min(convolution.weight.shape[:2]) >= _WINOGRAD_CHANNELS
        if self._dtype == torch.float32 and many and applicable(convolution):
            return _WINOGRAD_COST
        return 1.0

    def linear(self, linear: nn.Linear, activation: LinearActivation) -> nn.Module:
        """Return a `OneDnnLinear`."""
        return OneDnnLinear(linear, activation, self._dtype)
