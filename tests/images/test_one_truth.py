"""What a recipe's hash covers is what runs: each field changes features, or is refused."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.models.vgg import VGG, make_layers

from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.batches import feature_header
from pipeline.images.decoding import decode
from pipeline.images.network import RecipeNetwork
from pipeline.images.networks.random_weights import seeded_state
from pipeline.images.recipes import RECIPES, Crop, Recipe, RecipeError, Resize
from pipeline.images.transforms import read_sample
from pipeline.images.weights import load_weights
from pipeline.store.errors import UnknownName
from pipeline.store.hashing import recipe_hash
from pipeline.store.jobs.options import ENGINES
from tests.images.odd_files import photo

# Odd margins, ten crops, before the ReLU: here every field has something to decide.
BASE = replace(
    RECIPES["vgg16-squash-fc7"],
    name="test",
    resize=Resize("shorter-side", 256),
    crop=Crop("ten", 224),
    combine_crops="mean",
    shape=(4096,),
)


def narrow_vgg16() -> VGG:
    net = VGG(make_layers([4, "M", 8, "M", 8, "M", 8, "M", 8, "M"]), init_weights=False)
    net.classifier[0], net.classifier[3] = nn.Linear(8 * 49, 64), nn.Linear(64, 4096)
    net.classifier[6] = nn.Linear(4096, 10)
    return net


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Weights of a narrow network that stands in the place of VGG-16."""
    monkeypatch.setitem(BACKBONES, "vgg16", replace(BACKBONES["vgg16"], build=narrow_vgg16))
    return load_weights(BASE, "random:0").state


@pytest.fixture(scope="module")
def base_row(picture: Path) -> np.ndarray:
    """The features of `BASE`, with the weights of `state`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKBONES, "vgg16", replace(BACKBONES["vgg16"], build=narrow_vgg16))
        return features(BASE, load_weights(BASE, "random:0").state, picture)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose decoding, too, depends on its rule: it is stored lying on its side."""
    path = tmp_path_factory.mktemp("one_truth") / "on_its_side.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(7, 606, 512).save(path, exif=exif)
    return path


def features(
    recipe: Recipe, state: dict[str, Tensor], picture: Path, engine: str = "reference"
) -> np.ndarray:
    network = RecipeNetwork(recipe, state, engine=engine)
    sample = read_sample(picture, recipe, network.window)
    assert sample.windows is not None, sample.error
    row: np.ndarray = network(torch.from_numpy(sample.windows[None])).numpy()[0]
    return row.astype(recipe.storage)


def changed(recipe: Recipe, part: str, **values: Any) -> Recipe:
    """Return a recipe with other values, of its own or of one of its parts."""
    if not part:
        return replace(recipe, **values)
    return replace(recipe, **{part: replace(getattr(recipe, part), **values)})


CHANGES: dict[str, Callable[[Recipe], Recipe]] = {
    "resize.rule": lambda r: changed(r, "resize", rule="squash"),
    "resize.size": lambda r: changed(r, "resize", size=301),
    "resize.interpolation": lambda r: changed(r, "resize", interpolation="bicubic"),
    "resize.antialias": lambda r: changed(r, "resize", antialias=False),
    "crop.rule": lambda r: replace(r, crop=Crop("centre", 224), combine_crops="none"),
    "crop.size": lambda r: changed(r, "crop", size=192),
    "crop.centre_offset": lambda r: changed(r, "crop", centre_offset="floor"),
    "normalise.scale": lambda r: changed(r, "normalise", scale=127.0),
    "normalise.mean": lambda r: changed(r, "normalise", mean=(0.5, 0.5, 0.5)),
    "normalise.std": lambda r: changed(r, "normalise", std=(0.5, 0.5, 0.5)),
    "normalise.channels": lambda r: changed(r, "normalise", channels="BGR"),
    "tap": lambda r: replace(r, tap="features.14", pool="mean over cells", shape=(8,)),
    "activation": lambda r: replace(r, activation="none"),
    "norm": lambda r: replace(r, norm="l2"),
    "precision": lambda r: replace(r, precision="bf16"),
    "storage": lambda r: replace(r, storage="float16"),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_field_changes_features(
    field: str, state: dict[str, Tensor], base_row: np.ndarray, picture: Path
) -> None:
    other = CHANGES[field](BASE)
    assert recipe_hash(other.to_json(), "0" * 64) != recipe_hash(BASE.to_json(), "0" * 64)
    after = features(other, state, picture)
    assert base_row.dtype != after.dtype or not np.array_equal(base_row, after)


def test_features_do_not_depend_on_what_is_not_hashed(
    state: dict[str, Tensor], base_row: np.ndarray, picture: Path
) -> None:
    other = replace(BASE, source="elsewhere", weights="elsewhere")
    assert other.to_json() == BASE.to_json()
    np.testing.assert_array_equal(features(other, state, picture), base_row)


REFUSED: dict[str, Callable[[Recipe], Recipe]] = {
    "backbone": lambda r: replace(r, backbone="alexnet"),
    "tap": lambda r: replace(r, tap="classifier.7"),
    "pool": lambda r: replace(r, pool="mean over cells"),
    "combine_crops": lambda r: replace(r, combine_crops="none"),
    "shape": lambda r: replace(r, shape=(4095,)),
    "axes": lambda r: replace(r, axes="row, unit"),
    "decode": lambda r: replace(r, decode="opencv"),
    "precision": lambda r: replace(r, precision="float64"),
    "storage": lambda r: replace(r, storage="int8"),
    "activation": lambda r: replace(r, activation="gelu"),  # type: ignore[arg-type]
    "norm": lambda r: replace(r, norm="l1"),  # type: ignore[arg-type]
    "resize.rule": lambda r: changed(r, "resize", rule="pad"),
    "resize.interpolation": lambda r: changed(r, "resize", interpolation="nearest"),
    "crop.rule": lambda r: changed(r, "crop", rule="flip"),
    "crop.size": lambda r: changed(r, "crop", size=257),
    "crop.centre_offset": lambda r: changed(r, "crop", centre_offset="away"),
    "normalise.channels": lambda r: changed(r, "normalise", channels="GRB"),
}


@pytest.mark.parametrize("field", REFUSED)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_not_carried_out_is_refused(
    field: str, engine: str, state: dict[str, Tensor], picture: Path
) -> None:
    errors = {"backbone": (RecipeError, RuntimeError), "tap": (UnknownName,)}
    with pytest.raises(errors.get(field, (RecipeError,))):
        features(REFUSED[field](BASE), state, picture, engine)


def test_every_hashed_field_stands_in_these_tests() -> None:
    fields = {
        name if not isinstance(value, dict) else f"{name}.{inner}"
        for name, value in BASE.to_json().items()
        for inner in (value if isinstance(value, dict) else ("",))
    }
    # A name is no more than a name: two names are two recipes.
    assert fields - {*CHANGES, *REFUSED} == {"name"}
    assert {field.name for field in dataclasses.fields(Recipe)} >= set(BASE.to_json())


def test_the_header_says_what_the_recipe_says(state: dict[str, Tensor]) -> None:
    weights = load_weights(BASE, "random:0")
    header = feature_header(replace(BASE, storage="float16"), weights, "mine")
    assert (header.row_shape, header.axes, header.dtype) == ((4096,), "row, channel", "float16")


def test_the_decoding_rule_is_the_one_that_is_named(
    state: dict[str, Tensor], picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decode.RULES, "as stored", lambda image: image.convert("RGB"))
    upright, as_stored = (
        features(recipe, state, picture) for recipe in (BASE, replace(BASE, decode="as stored"))
    )
    assert not np.array_equal(upright, as_stored)
    with pytest.raises(RecipeError, match="pillow, exif"):
        features(replace(BASE, decode="as you like"), state, picture)


# The layer that is named is the layer that is read.

TAPS = {
    "alexnet": ("classifier.1",),
    "vgg16": ("features.1", "features.13", "classifier.0", "classifier.6"),
    "resnet152": ("conv1", "layer2.0.conv3", "layer3", "fc"),
    "googlenet": ("inception4a.branch2",),
    "caffenet": ("conv3", "fc6"),
    "efficientnet-lite0": ("_conv_stem", "_blocks.3", "_fc"),
}


def narrow_end(name: str, *layers: str) -> Callable[[], nn.Module]:
    """Return what builds a network with 64 channels between its fully connected layers."""
    build = BACKBONES[name].build

    def narrowed() -> nn.Module:
        with torch.device("meta"):
            net = build()
        first = net.get_submodule(layers[0])
        assert isinstance(first, nn.Linear)
        width = first.in_features
        for layer, outputs in zip(layers, (64, 64, 1000), strict=True):
            net.set_submodule(layer, nn.Linear(width, outputs, device="meta"))
            width = outputs
        return net

    return narrowed


@pytest.mark.parametrize(("name", "tap"), [(name, tap) for name in TAPS for tap in TAPS[name]])
@torch.inference_mode()
def test_any_layer_may_be_the_tap(
    name: str, tap: str, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output is what a hook sees while the whole network runs, then the ReLU."""
    narrow = {
        "vgg16": narrow_vgg16,
        "resnet152": lambda: ResNet(Bottleneck, [1, 1, 1, 1], width_per_group=8),
        "alexnet": narrow_end("alexnet", "classifier.1", "classifier.4", "classifier.6"),
        "caffenet": narrow_end("caffenet", "fc6", "fc7", "fc8"),
    }
    if name in narrow:
        monkeypatch.setitem(BACKBONES, name, replace(BACKBONES[name], build=narrow[name]))
    backbone = BACKBONES[name]
    with torch.device("meta"):
        net = backbone.build()
    state = seeded_state(net, 0, backbone.residual_norms)
    net.load_state_dict(state, assign=True)
    outputs: list[Tensor] = []
    net.eval().get_submodule(tap).register_forward_hook(
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
        recipe = replace(recipe, axes="row, cell_y, cell_x, channel")
    recipe = replace(recipe, shape=tuple(expected.shape[1:]))
    for engine in ENGINES:
        found = RecipeNetwork(recipe, state, engine=engine)(pixels[None])
        assert float((found - expected).norm() / expected.norm()) < 1e-5, engine


@pytest.mark.parametrize("tap", ["features", "features.2", "features.14", "classifier.4"])
def test_ten_crops_may_be_tapped_anywhere(
    tap: str, state: dict[str, Tensor], picture: Path
) -> None:
    """Also within the layers that they would share."""
    squashed = replace(BASE, resize=Resize("squash", 256), tap=tap)
    shape: tuple[int, ...] = {"features.2": (112, 112, 4), "classifier.4": (4096,)}.get(
        tap, (7, 7, 8)
    )
    axes = "row, channel" if len(shape) == 1 else "row, cell_y, cell_x, channel"
    recipe = replace(squashed, shape=shape, axes=axes)
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


@pytest.mark.parametrize("engine", ENGINES)
def test_a_layer_that_no_picture_passes_through_is_refused(
    engine: str, state: dict[str, Tensor], picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> VGG:
        net = narrow_vgg16()
        net.spare = nn.ReLU()
        return net

    monkeypatch.setitem(BACKBONES, "vgg16", replace(BACKBONES["vgg16"], build=build))
    with pytest.raises(RecipeError, match="images do not pass through"):
        features(replace(BASE, tap="spare"), state, picture, engine)


def test_a_list_of_layers_is_no_tap() -> None:
    recipe = RECIPES["efficientnet-lite0-pool"]
    with pytest.raises(
        RecipeError, match=r"a list of layers; name one of them, such as _blocks\.0"
    ):
        RecipeNetwork(replace(recipe, tap="_blocks"), load_weights(recipe).state)


def test_an_unknown_engine_is_refused(state: dict[str, Tensor]) -> None:
    with pytest.raises(RecipeError, match="fast, reference"):
        RecipeNetwork(BASE, state, engine="fats")
