"""Fast CUDA layers: cuDNN's fused convolutions, and cuBLAS where it is faster.

torch's own convolution adds the bias, the shortcut and the activation in three more passes over
memory. On a fast card these take longer than the arithmetic: `python -m bench.gpu extract`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.engine.fuse import Activation, Convolution, PlainConvolution, PlainLayers

# Columns of pixels that are multiplied at a time.
_COLUMN_BYTES = 1 << 28


class CudnnConvolution(PlainConvolution):
    """A convolution with bias, addition and ReLU in one pass, where a kernel has them."""

    def __init__(self, convolution: Convolution, activation: Activation) -> None:
        super().__init__(convolution, activation)
        c = convolution
        # A 1 x 1 convolution of channels-last maps is a matrix product without copies.
        self.is_product: bool = (
            (*c.weight.shape[2:], *c.stride, *c.padding, c.groups) == (1, 1, 1, 1, 0, 0, 1)
            and self.bias is not None
            and self.activation in ("none", "relu")
        )
        self.has_columns: bool = (
            (*c.weight.shape[2:], *c.stride, *c.dilation, c.groups) == (3, 3, 1, 1, 1, 1, 1)
            and self.bias is not None
            and self.activation == "relu"
        )

    def forward(
        self, x: Tensor, other: Tensor | None = None, padding: list[int] | None = None
    ) -> Tensor:
        """Return activation(convolution(x) [+ other]), as `PlainConvolution`."""
        if x.device.type != "cuda":
            return super().forward(x, other, padding)
        if self.is_product and other is None and padding is None:
            return self._product(x)
        if self.activation != "relu":
            return super().forward(x, other, padding)
        margins = tuple(padding or self.padding)
        geometry = (self.stride, margins, self.dilation, self.groups)
        if other is None and self.has_columns and _is_slow(x):
            return self.by_columns(x, margins)
        if other is None:
            return torch.cudnn_convolution_relu(x, self.weight, self.bias, *geometry)
        if other.shape != self._shape(x, margins):  # a sum that broadcasts
            return super().forward(x, other, padding)
        return torch.cudnn_convolution_add_relu(x, self.weight, other, 1.0, self.bias, *geometry)

    def by_columns(self, x: Tensor, padding: tuple[int, ...]) -> Tensor:
        """Return relu(convolution(x)) of 3 x 3, as matrix products of the pixels around each."""
        assert self.bias is not None
        images, _, height, width = self._shape(x, padding)
        channels, filters = x.shape[1], len(self.weight)
        below, right = padding
        padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, right, right, below, below))
        # A view (n, h, w, 3, 3, channels): in channels-last memory the pixels around a pixel are
        # three runs of 3 x channels numbers, so that the copy to columns reads long runs.
        windows = padded.unfold(1, 3, 1).unfold(2, 3, 1).permute(0, 1, 2, 4, 5, 3)
        weight = self.weight.permute(2, 3, 1, 0).reshape(9 * channels, filters)
        output = x.new_empty(images, height, width, filters)
        image_bytes = height * width * len(weight) * x.element_size()
        # Columns have nine times the bytes of the maps, so they are made for some images at a time.
        some = max(1, _COLUMN_BYTES // image_bytes)
        for part, result in zip(windows.split(some), output.split(some), strict=True):
            columns = part.reshape(-1, len(weight))
            torch._addmm_activation(self.bias, columns, weight, out=result.flatten(0, 2))
        return output.permute(0, 3, 1, 2)

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
        """Return the result of a 1 x 1 convolution as the matrix product of pixels and weights."""
        pixels = x.permute(0, 2, 3, 1)
        weight = self.weight.flatten(1)
        if self.activation == "none":
            product = F.linear(pixels, weight, self.bias)
        else:
            assert self.bias is not None
            product = torch._addmm_activation(self.bias, pixels.flatten(0, 2), weight.t())
        return product.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)


def _is_slow(x: Tensor) -> bool:
    """Return whether cuDNN's choice for a 3 x 3 convolution is slower than matrix products."""
    # For strips of ten crops and for wide maps in float32, cuDNN 9 chooses Fourier transforms, up
    # to 26 times slower on an H200.
    if x.dtype != torch.float32 or torch.backends.cudnn.allow_tf32:
        return False
    channels, *sides = x.shape[1:]
    return 3 * min(sides) <= max(sides) or (channels >= 256 and min(sides) > 14)


class CudnnLayers(PlainLayers):
    """Layers for CUDA devices."""

    def convolution(self, convolution: Convolution, activation: Activation) -> nn.Module:
        """Return a `CudnnConvolution`."""
        return CudnnConvolution(convolution, activation)
