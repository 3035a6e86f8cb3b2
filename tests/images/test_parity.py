"""Each recipe against a few independent lines of torchvision and Pillow, with seeded weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from torch import Tensor
from torchvision import models, transforms
from torchvision.transforms import v2

from pipeline.images.extract import read_sample
from pipeline.images.network import FeatureNetwork
from pipeline.images.weights import load_weights
from pipeline.recipes import RECIPES, Recipe

TO_TENSOR = transforms.ToTensor()
IMAGENET = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def ours(recipe: Recipe, network: FeatureNetwork, paths: list[Path]) -> Tensor:
    crops = [read_sample(path, recipe).crops for path in paths]
    return network(torch.from_numpy(np.stack([c for c in crops if c is not None])))


def opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


@pytest.fixture(scope="module")
def photos(coco_images: list[Path]) -> list[Path]:
    """Three photos of different aspect ratios, the widest first."""
    by_shape = sorted(coco_images, key=lambda path: opened(path).width / opened(path).height)
    return [by_shape[-1], by_shape[0], by_shape[len(by_shape) // 2]]


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@torch.inference_mode()
def test_resnet152_grid_and_pool(photos: list[Path]) -> None:
    grid, pool = RECIPES["resnet152-grid"], RECIPES["resnet152-pool"]
    weights = load_weights(grid, "random:0")
    net = models.resnet152().eval()
    net.load_state_dict(weights.state)
    squash = v2.Compose([v2.Resize([224, 224], antialias=True), TO_TENSOR, IMAGENET])
    images = torch.stack([squash(opened(path)) for path in photos])
    cells: dict[str, Tensor] = {}
    net.layer4.register_forward_hook(lambda m, i, o: cells.update(map=o))
    net.avgpool.register_forward_hook(lambda m, i, o: cells.update(pooled=o.flatten(1)))
    net(images)

    found = ours(grid, FeatureNetwork(grid, weights.state), photos)
    assert found.shape == (3, 7, 7, 2048)
    assert float(found.min()) >= 0
    assert relative(found, cells["map"].permute(0, 2, 3, 1)) < 1e-6
    pooled = ours(pool, FeatureNetwork(pool, weights.state), photos)
    assert relative(pooled, cells["pooled"]) < 1e-6
    assert relative(found.mean(dim=(1, 2)), pooled) < 1e-6


@torch.inference_mode()
def test_vgg19_fc7_of_ten_crops_and_of_the_centre(photos: list[Path]) -> None:
    ten, one = RECIPES["vgg19-fc7-10crop"], RECIPES["vgg19-fc7"]
    weights = load_weights(ten, "random:0")
    net: Any = models.vgg19().eval()
    net.load_state_dict(weights.state)
    fc7 = torch.nn.Sequential(*list(net.classifier)[:5])
    before_relu = []
    net.classifier[3].register_forward_hook(lambda m, i, o: before_relu.append(o.clone()))

    def features(x: Tensor) -> Tensor:
        return fc7(net.avgpool(net.features(x)).flatten(1))

    crops = v2.Compose([v2.Resize([256, 256], antialias=True), v2.TenCrop(224)])
    expected = torch.stack(
        [
            torch.stack([features(IMAGENET(TO_TENSOR(c))[None])[0] for c in crops(opened(p))]).mean(
                0
            )
            for p in photos[:1]
        ]
    )
    network = FeatureNetwork(ten, weights.state)
    found = ours(ten, network, photos[:1])
    assert found.shape == (1, 4096)
    assert relative(found, expected) < 1e-6
    assert torch.equal(ours(ten, network, photos[:1]), found), "nothing is overwritten in place"
    assert any(float(x.min()) < 0 for x in before_relu), "fc7 before its ReLU has negatives"

    centre = v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224), TO_TENSOR, IMAGENET])
    expected = features(torch.stack([centre(opened(path)) for path in photos]))
    assert relative(ours(one, FeatureNetwork(one, weights.state), photos), expected) < 1e-6


@torch.inference_mode()
def test_efficientnet_lite0_with_its_real_weights(photos: list[Path]) -> None:
    grid, pool = RECIPES["efficientnet-lite0-grid"], RECIPES["efficientnet-lite0-pool"]
    weights = load_weights(grid)
    net = EfficientNet.from_name("efficientnet-lite0").eval()
    net.load_state_dict(weights.state)
    arrays = [np.asarray(opened(p).resize((224, 224), Image.Resampling.BILINEAR)) for p in photos]
    pixels = torch.from_numpy((np.stack(arrays).astype(np.float32) - 127) / 128)
    images = pixels.permute(0, 3, 1, 2)
    expected = net.extract_features(images)
    found = ours(grid, FeatureNetwork(grid, weights.state), photos)
    assert found.shape == (3, 7, 7, 1280)
    assert relative(found, expected.permute(0, 2, 3, 1)) < 1e-6
    pooled = ours(pool, FeatureNetwork(pool, weights.state), photos)
    assert relative(pooled, expected.mean(dim=(2, 3))) < 1e-6
    assert int(net._fc(pooled)[0].argmax()) == int(net(images)[0].argmax())


@torch.inference_mode()
def test_cells_are_stored_from_the_top_left(tmp_path: Path) -> None:
    recipe = RECIPES["efficientnet-lite0-grid"]
    network = FeatureNetwork(recipe, load_weights(recipe).state)
    grey = np.full((224, 224, 3), 127, np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    plain = ours(recipe, network, [tmp_path / "grey.png"])[0]
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3))
    for top, left in ((0, 0), (0, 160), (160, 0), (160, 160)):
        bright = grey.copy()
        bright[top : top + 64, left : left + 64] = noise
        Image.fromarray(bright).save(tmp_path / "corner.png")
        change = (ours(recipe, network, [tmp_path / "corner.png"])[0] - plain).norm(dim=2)
        corners = [
            change[y, x].mean() for y in (np.s_[:3], np.s_[4:]) for x in (np.s_[:3], np.s_[4:])
        ]
        assert int(torch.stack(corners).argmax()) == 2 * (top > 0) + (left > 0)


def test_the_mean_colour_becomes_zero() -> None:
    recipe = RECIPES["efficientnet-lite0-pool"]
    network = FeatureNetwork(recipe, load_weights(recipe).state)
    grey = torch.full((1, 224, 224, 3), 127, dtype=torch.uint8)
    assert network.normalised(grey).abs().max() == 0
