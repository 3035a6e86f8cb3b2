"""CUDA layers as matrix products, which need no card; tests/test_gpu.py runs the others."""

import pytest
import torch
from torch.nn import functional as F

from pipeline.images.engine import cudnn
from pipeline.images.engine.cudnn import CudnnConvolution
from pipeline.images.engine.fuse import Convolution


@pytest.mark.parametrize("images_at_once", [1, 2, 5])
@pytest.mark.parametrize(
    ("sides", "padding"),
    [((4, 21), (0, 1)), ((21, 4), (1, 0)), ((15, 15), (1, 1)), ((3, 3), (0, 0))],
)
@torch.inference_mode()
def test_products_of_columns_are_the_convolution(
    sides: tuple[int, int],
    padding: tuple[int, int],
    images_at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(7, 6, 3, 3, generator=generator)
    bias = torch.randn(7, generator=generator)
    x = torch.randn(5, 6, *sides, generator=generator).contiguous(memory_format=torch.channels_last)
    expected = F.conv2d(x, weight, bias, 1, padding).relu()
    pixels = expected.shape[2] * expected.shape[3]
    monkeypatch.setattr(cudnn, "_COLUMN_BYTES", images_at_once * pixels * 6 * 9 * 4)
    layer = CudnnConvolution(Convolution(weight, bias, [1, 1], [1, 1], [1, 1], 1), ("relu", []))
    assert layer.has_columns
    found = layer.by_columns(x, padding)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
