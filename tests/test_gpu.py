"""A card computes what the processor does; GPU_TESTS_DEVICE=cpu tries these tests without one."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.heads.finetuning.network import LearningNetwork
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.engine.cudnn import CudnnLayers
from pipeline.images.engine.fuse import PlainLayers, rewrite
from pipeline.images.engine.ten_crops import share_ten_crops
from pipeline.images.extract import extract
from pipeline.images.recipes import Crop, resolve_recipe
from pipeline.images.transforms import crop_offsets
from pipeline.images.weights import load_weights
from pipeline.store.jobs.options import Compute
from pipeline.store.shards.feature_set import FeatureSet
from tests.images.test_engines import HAZARDS, Hazards, Net, seeded, stack

RECIPE = "timm:test_resnet"
Rows = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def device() -> str:
    """The card, or the device that is named by the environment."""
    named = os.environ.get("GPU_TESTS_DEVICE", "cuda")
    if named == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return named


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Returns the features of ten images of several sizes, by device, precision and the rest."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(10):
        pixels = rng.integers(0, 256, (200 + 10 * number, 220, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")

    def extracted(out: str, precision: str = "float32", **compute: object) -> np.ndarray:
        how = Compute("random:0", precision=precision, batch_size=4, **compute)  # type: ignore[arg-type]
        extract(folder, tmp_path / out, recipe=RECIPE, compute=how)
        features = FeatureSet(tmp_path / out)
        return features.read(features.ids)

    return extracted


def test_features_are_those_of_the_processor(device: str, rows: Rows) -> None:
    here, there = rows("cpu", device="cpu"), rows("gpu", device=device)
    assert np.abs(there - here).max() < 1e-4 * np.abs(here).max()
    again = rows("again", device=device, threads=1, readers=1)
    np.testing.assert_array_equal(again, there)


@pytest.mark.parametrize(("precision", "error"), [("tf32", 5e-3), ("fp16", 1e-2), ("bf16", 5e-2)])
def test_narrow_arithmetic_is_near(device: str, rows: Rows, precision: str, error: float) -> None:
    if precision == "tf32" and device == "cpu":
        pytest.skip("needs a GPU")
    exact, narrow = rows("exact", device=device), rows("narrow", precision, device=device)
    assert np.linalg.norm(narrow - exact) < error * np.linalg.norm(exact)


@pytest.mark.parametrize("kind", [*HAZARDS, "blocks"])
@torch.inference_mode()
def test_fused_layers_are_those_of_torch(device: str, kind: str) -> None:
    net = seeded(Net() if kind == "blocks" else Hazards(kind))
    channels, side = (3, 15) if kind == "blocks" else (8, 6)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, channels, side, side, generator=generator)
    x = x.contiguous(memory_format=torch.channels_last)
    expected = net(x)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    fused = rewrite(net, CudnnLayers()).float().to(device)
    torch.testing.assert_close(fused(x.to(device)).cpu(), expected, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_shared_ten_crops_are_those_of_the_processor(device: str) -> None:
    plain = seeded(stack(3))
    offsets = crop_offsets(64, 64, Crop("ten", 48))
    canvases = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    found = []
    for layers, where in ((PlainLayers(), "cpu"), (CudnnLayers(), device)):
        shared = share_ten_crops(plain, offsets, 64, 48, layers)
        assert shared is not None
        found.append(shared.float().to(where)(canvases.to(where)).cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_processes_read_what_threads_read(
    device: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_threads = rows("threads", device=device)
    monkeypatch.setattr("pipeline.images.batches._WORTH_A_PROCESS", 1)
    np.testing.assert_array_equal(rows("processes", device=device, readers=3), by_threads)


def test_gradients_are_those_of_the_processor(device: str) -> None:
    recipe = resolve_recipe(RECIPE)
    backbone, state = backbone_named(recipe.backbone), load_weights(recipe, "random:0").state
    size = recipe.crop.size
    windows = torch.rand(2, size, size, 3, generator=torch.Generator().manual_seed(0)) * 255
    gradients = []
    for name in ("cpu", device):
        network = LearningNetwork(recipe, backbone, state).to(name).train()
        network(windows.to(name)).square().mean().backward()
        gradients.append([p.grad.cpu() for p in network.parameters() if p.grad is not None])
    for here, there in zip(*gradients, strict=True):
        torch.testing.assert_close(there, here, rtol=1e-2, atol=1e-3 * float(here.abs().max()))
