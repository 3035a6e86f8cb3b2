"""What a recipe's hash covers is what runs: each field changes features, or is refused."""

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models.vgg import VGG

from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.batches import feature_header
from pipeline.images.decoding import decode
from pipeline.images.network import RecipeNetwork
from pipeline.images.networks.random_weights import seeded_state
from pipeline.images.recipes import RECIPES, Crop, Recipe, RecipeError, Resize
from pipeline.images.recipes.layers import GRID_AXES, ROW_AXES
from pipeline.images.transforms import read_sample
from pipeline.images.weights import load_weights
from pipeline.store.errors import UnknownName
from pipeline.store.hashing import recipe_hash
from pipeline.store.jobs.options import ENGINES
from tests.images.networks.small import narrow_vgg, use_narrow_networks
from tests.images.odd_files import photo

# Odd margins, ten crops, before the ReLU: here every field has something to decide.
BASE = replace(
    RECIPES["vgg16-squash-fc7"], name="test", resize=Resize("shorter-side", 256),
    crop=Crop("ten", 224), combine_crops="mean", shape=(4096,),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    use_narrow_networks(monkeypatch)


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """Weights of the network that stands in the place of VGG-16."""
    with torch.device("meta"):
        return seeded_state(narrow_vgg(), 0, "")


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose decoding, too, depends on its rule: it is stored lying on its side."""
    path = tmp_path_factory.mktemp("one_truth") / "on_its_side.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(7, 606, 512).save(path, exif=exif)
    return path


@pytest.fixture(scope="module")
def base_row(picture: Path, state: dict[str, Tensor]) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        use_narrow_networks(patch)
        return features(BASE, state, picture)


def features(
    recipe: Recipe, state: dict[str, Tensor], picture: Path, engine: str = "reference"
) -> np.ndarray:
    network = RecipeNetwork(recipe, state, engine=engine)
    sample = read_sample(picture, recipe, network.window)
    assert sample.windows is not None, sample.error
    row: np.ndarray = network(torch.from_numpy(sample.windows[None])).numpy()[0]
    return row.astype(recipe.storage)


def with_field(field: str, value: Any) -> Recipe:
    """Return `BASE` with another value of one field, also of one of its parts."""
    part, _, name = field.rpartition(".")
    changed = {name: value}
    return replace(BASE, **({part: replace(getattr(BASE, part), **changed)} if part else changed))


CHANGES: dict[str, Any] = {
    "resize.rule": "squash", "resize.size": 301, "resize.interpolation": "bicubic",
    "resize.antialias": False, "crop.size": 192, "crop.centre_offset": "floor",
    "normalise.scale": 127.0, "normalise.mean": (0.5, 0.5, 0.5), "normalise.std": (0.5, 0.5, 0.5),
    "normalise.channels": "BGR", "activation": "none", "norm": "l2", "precision": "bf16",
    "storage": "float16",
}  # fmt: skip
# Fields of which one alone contradicts the others.
TOGETHER: dict[str, Recipe] = {
    "crop.rule": replace(BASE, crop=Crop("centre", 224), combine_crops="none"),
    "tap": replace(BASE, tap="features.14", pool="mean over cells", shape=(16,)),
}
REFUSED: dict[str, Any] = {
    "backbone": "alexnet", "tap": "classifier.7", "pool": "mean over cells",
    "combine_crops": "none", "shape": (4095,), "axes": "row, unit", "decode": "opencv",
    "precision": "float64", "storage": "int8", "activation": "gelu", "norm": "l1",
    "resize.rule": "pad", "resize.interpolation": "nearest", "crop.rule": "flip", "crop.size": 257,
    "crop.centre_offset": "away", "normalise.channels": "GRB",
}  # fmt: skip


@pytest.mark.parametrize("field", [*CHANGES, *TOGETHER])
def test_a_changed_field_changes_features(
    field: str, state: dict[str, Tensor], base_row: np.ndarray, picture: Path
) -> None:
    other = TOGETHER[field] if field in TOGETHER else with_field(field, CHANGES[field])
    assert recipe_hash(other.to_json(), "0" * 64) != recipe_hash(BASE.to_json(), "0" * 64)
    after = features(other, state, picture)
    assert base_row.dtype != after.dtype or not np.array_equal(base_row, after)


def test_features_do_not_depend_on_what_is_not_hashed(
    state: dict[str, Tensor], base_row: np.ndarray, picture: Path
) -> None:
    other = replace(BASE, source="elsewhere", weights="elsewhere")
    assert other.to_json() == BASE.to_json()
    np.testing.assert_array_equal(features(other, state, picture), base_row)


@pytest.mark.parametrize("field", REFUSED)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_not_carried_out_is_refused(
    field: str, engine: str, state: dict[str, Tensor], picture: Path
) -> None:
    errors = {"backbone": (RecipeError, RuntimeError), "tap": (UnknownName,)}
    with pytest.raises(errors.get(field, (RecipeError,))):
        features(with_field(field, REFUSED[field]), state, picture, engine)


def test_every_hashed_field_stands_in_these_tests() -> None:
    fields = {
        name if not isinstance(value, dict) else f"{name}.{inner}"
        for name, value in BASE.to_json().items()
        for inner in (value if isinstance(value, dict) else ("",))
    }
    # A name is no more than a name: two names are two recipes.
    assert fields - {*CHANGES, *TOGETHER, *REFUSED} == {"name"}
    # These change no feature, or are recorded next to the recipe.
    unhashed = {"weights", "source", "trained_on"}
    assert replace(BASE, plugin="mine==1").to_json() == {**BASE.to_json(), "plugin": "mine==1"}
    assert {field.name for field in dataclasses.fields(Recipe)} - unhashed - {"plugin"} == set(
        BASE.to_json()
    )


def test_the_header_and_the_decoding_follow_the_recipe(
    state: dict[str, Tensor], base_row: np.ndarray, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = replace(BASE, storage="float16")
    header = feature_header(half, load_weights(BASE, "random:0"), "mine")
    assert (header.row_shape, header.axes, header.dtype) == ((4096,), "row, channel", "float16")
    monkeypatch.setitem(decode.RULES, "as stored", lambda image: image.convert("RGB"))
    as_stored = features(replace(BASE, decode="as stored"), state, picture)
    assert not np.array_equal(base_row, as_stored)


# The layer that is named is the layer that is read.

TAPS = {
    "alexnet": ("classifier.1",),
    "vgg16": ("features.1", "features.13", "classifier.0", "classifier.6"),
    "resnet152": ("conv1", "layer2.0.conv3", "layer3", "fc"),
    "googlenet": ("inception4a.branch2",),
    "caffenet": ("conv3", "fc6"),
    "efficientnet-lite0": ("_conv_stem", "_blocks.3", "_fc"),
    "xception": ("block1.conv1_bn", "block3", "block4.branch.pool", "block6.branch.sepconv2"),
}
LIKE = {
    "vgg19": "vgg16",
    "efficientnet-lite1": "efficientnet-lite0",
    "efficientnet-lite2": "efficientnet-lite0",
    "efficientnet-lite1-even": "efficientnet-lite0",
    "efficientnet-lite2-even": "efficientnet-lite0",
    **{f"resnet{depth}-caffe": "resnet152" for depth in (50, 101, 152)},
}
"""Backbones with the layers of another one in `TAPS`, in another number."""


def test_every_backbone_that_is_marked_as_tested_is_tested() -> None:
    tested = {name for name, backbone in BACKBONES.items() if backbone.tested}
    assert tested == {*TAPS, *LIKE, "dct"}, (
        "add it to TAPS, or set `tested=False`"
    )  # dct: one layer
    assert {*LIKE.values()} <= {*TAPS}


@pytest.mark.parametrize(("name", "tap"), [(name, tap) for name in TAPS for tap in TAPS[name]])
@torch.inference_mode()
def test_any_layer_may_be_the_tap(name: str, tap: str, picture: Path) -> None:
    """Its output is what a hook sees while the whole network runs, then the ReLU."""
    backbone = BACKBONES[name]
    state = seeded_state(backbone.outline(), 0, backbone.residual_norms)
    net = backbone.filled(state).eval()
    outputs: list[Tensor] = []
    net.get_submodule(tap).register_forward_hook(
        lambda module, inputs, output: outputs.append(output.clamp(min=0))
    )
    crop = Crop("centre", 227 if name == "caffenet" else 224)
    recipe = replace(BASE, backbone=name, crop=crop, combine_crops="none", tap=tap)
    windows = read_sample(picture, recipe, crop).windows
    assert windows is not None
    pixels = torch.from_numpy(windows)
    net(RecipeNetwork(recipe, state, engine="reference").normalised(pixels))
    expected = outputs[0]
    if expected.ndim == 4:
        expected = expected.permute(0, 2, 3, 1)
        recipe = replace(recipe, axes=GRID_AXES)
    recipe = replace(recipe, shape=tuple(expected.shape[1:]))
    for engine in ENGINES:
        found = RecipeNetwork(recipe, state, engine=engine)(pixels[None])
        assert float((found - expected).norm() / expected.norm()) < 1e-5, engine


@pytest.mark.parametrize(
    ("tap", "shape"),
    [
        ("features", (7, 7, 16)), ("features.2", (112, 112, 4)), ("features.14", (7, 7, 16)),
        ("classifier.4", (4096,)),
    ],
)  # fmt: skip
def test_ten_crops_may_be_tapped_anywhere(
    tap: str, shape: tuple[int, ...], state: dict[str, Tensor], picture: Path
) -> None:
    """Also within the layers that they would share."""
    axes = ROW_AXES if len(shape) == 1 else GRID_AXES
    recipe = replace(BASE, resize=Resize("squash", 256), tap=tap, shape=shape, axes=axes)
    fast, reference = (features(recipe, state, picture, engine) for engine in ENGINES)
    assert float(np.linalg.norm(fast - reference) / np.linalg.norm(reference)) < 1e-5


@pytest.mark.parametrize(
    ("tap", "message"),
    [
        ("clasifier.3", r"vgg16 has no layer 'clasifier\.3'; did you mean classifier\.3"),
        ("xyz", "it has features, avgpool, classifier"),
        ("", "no layer ''"),
    ],
)
def test_an_unknown_tap_names_near_ones(tap: str, message: str, state: dict[str, Tensor]) -> None:
    with pytest.raises(UnknownName, match=message):
        RecipeNetwork(replace(BASE, tap=tap), state)


def _with_spare_layer() -> VGG:
    net = narrow_vgg()
    net.spare, net.several = nn.ReLU(), nn.ModuleList([nn.ReLU()])
    return net


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("tap", "message"),
    [
        ("spare", "images do not pass through"),
        ("several", r"a list of layers; name one of them, such as several\.0"),
    ],
)
def test_a_layer_without_an_output_is_refused(
    tap: str, message: str, engine: str, state: dict[str, Tensor], picture: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(BACKBONES, "vgg16", replace(BACKBONES["vgg16"], build=_with_spare_layer))
    with pytest.raises(RecipeError, match=message):
        features(replace(BASE, tap=tap), state, picture, engine)


def test_an_unknown_engine_is_refused(state: dict[str, Tensor]) -> None:
    with pytest.raises(RecipeError, match="fast, reference"):
        RecipeNetwork(BASE, state, engine="fats")
