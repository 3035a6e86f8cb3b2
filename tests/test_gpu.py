"""A card computes what the processor does; GPU_TESTS_DEVICE=cpu tries these tests without one."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.finetuning.network import LearningNetwork
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.extract import extract
from pipeline.images.weights import load_weights
from pipeline.jobs.options import Compute
from pipeline.recipes import resolve_recipe
from pipeline.shards.feature_set import FeatureSet

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
