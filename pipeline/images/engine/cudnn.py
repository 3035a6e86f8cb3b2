"""Fast CUDA layers: cuDNN's fused convolutions, and cuBLAS for those of 1 x 1.

torch's own convolution adds the bias, the shortcut and the activation in three more passes over
memory. On a fast card these take longer than the arithmetic: `python -m bench.gpu extract`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.engine.fuse import Activation, Convolution, PlainConvolution, PlainLayers


class CudnnConvolution(PlainConvolution):
    """A convolution with bias, addition and ReLU in one pass, where a kernel has them."""

    def __init__(self, convolution: Convolution, activation: Activation) -> None:
        super().__init__(convolution, activation)
        c = convolution
        # A 1 x 1 convolution of channels-last maps is a matrix product without copies.
        self.is_product = (
            (*c.weight.shape[2:], *c.stride, *c.padding, c.groups) == (1, 1, 1, 1, 0, 0, 1)
            and self.bias is not None
            and self.activation in ("none", "relu")
        )

    def forward(
        self, x: Tensor, other: Tensor | None = None, padding: list[int] | None = None
    ) -> Tensor:
        """Return activation(convolution(x) [+ other]); see `PlainConvolution`."""
        if x.device.type != "cuda":
            return super().forward(x, other, padding)
        if self.is_product and other is None and padding is None:
            return self._product(x)
        if self.activation != "relu":
            return super().forward(x, other, padding)
        margins = tuple(padding or self.padding)
        geometry = (self.stride, margins, self.dilation, self.groups)
        if other is None:
            return torch.cudnn_convolution_relu(x, self.weight, self.bias, *geometry)
        if other.shape != self._shape(x, margins):  # a sum that broadcasts
            return super().forward(x, other, padding)
        return torch.cudnn_convolution_add_relu(x, self.weight, other, 1.0, self.bias, *geometry)

    def _shape(self, x: Tensor, padding: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the convolution's result."""
        kernel = self.weight.shape[2:]
        sides = (
            (side + 2 * margin - dilation * (width - 1) - 1) // stride + 1
            for side, margin, dilation, width, stride in zip(
                x.shape[2:], padding, self.dilation, kernel, self.stride, strict=True
            )
        )
        return (len(x), len(self.weight), *sides)

    def _product(self, x: Tensor) -> Tensor:
        pixels = x.permute(0, 2, 3, 1)
        weight = self.weight.flatten(1)
        if self.activation == "none":
            found = F.linear(pixels, weight, self.bias)
        else:
            assert self.bias is not None
            found = torch._addmm_activation(self.bias, pixels.flatten(0, 2), weight.t())
        return found.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)


class CudnnLayers(PlainLayers):
    """Layers for CUDA devices."""

    def convolution(self, convolution: Convolution, activation: Activation) -> nn.Module:
        """Return a `CudnnConvolution`."""
        return CudnnConvolution(convolution, activation)
