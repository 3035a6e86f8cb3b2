"""Networks of other packages and programs, by entry points and by a call; also on workers."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import pipeline
from pipeline.images.backbones.image_network import ImageNetwork
from pipeline.images.recipes import RecipeError
from pipeline.images.recipes.by_name import PROVIDERS
from pipeline.store.errors import UnexpectedType, UnknownName
from pipeline.store.registry import PluginError

WAY = pipeline.Preprocessing(
    pipeline.Resize("squash", 16),
    pipeline.Crop("none", 16),
    pipeline.Normalise(255.0, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
)


def build() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 5, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))


def pretrained() -> Mapping[str, Tensor]:
    torch.manual_seed(3)
    return build().state_dict()


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(PROVIDERS, "_called", {})
    layers = {"1": (5, 4, 4), "output": (5, 1, 1)}
    pipeline.register_backbone("mine", build, WAY, layers, pretrained=pretrained)
    return "mine"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(3):
        pixels = np.full((20, 30, 3), 50 * number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
    return tmp_path / "photos"


def test_rows_are_those_of_the_network(mine: str) -> None:
    rng = np.random.default_rng(0)
    photo = rng.integers(0, 255, (16, 16, 3), np.uint8)
    net = build()
    net.load_state_dict(dict(pretrained()))
    x = torch.from_numpy(photo).permute(2, 0, 1)[None].float() / 255
    with torch.inference_mode():
        grid = net[:2]((x - 0.5) / 0.25)[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(pipeline.FeatureExtractor("mine")(photo), grid, atol=1e-5)
    pooled = pipeline.FeatureExtractor("mine-pool@1")(photo)
    np.testing.assert_allclose(pooled, grid.mean((0, 1)), atol=1e-5)
    # A layer that was not declared is found in the network.
    before = pipeline.FeatureExtractor("mine-max@0")(photo)
    np.testing.assert_allclose(np.maximum(before, 0), grid.max((0, 1)), atol=1e-5)


def test_its_features_say_where_they_come_from(mine: str, tmp_path: Path, photos: Path) -> None:
    index = pipeline.extract(photos, tmp_path / "here", recipe="mine-pool")
    assert index.header.recipe["plugin"] == f"registered in {__name__}"
    two = pipeline.Place(workers=2)
    pipeline.extract(photos, tmp_path / "there", recipe="mine-pool", place=two)
    here, there = (next((tmp_path / out).glob("*.h5")) for out in ("here", "there"))
    assert here.read_bytes() == there.read_bytes()
    PROVIDERS._called.clear()
    # Without the network, its rows are read and verified, and not computed.
    assert pipeline.read_features(tmp_path / "here").read().shape == (3, 5)
    pipeline.verify(tmp_path / "here")
    with pytest.raises(UnknownName, match="no image recipe or backbone is called 'mine-pool'"):
        pipeline.extract(photos, tmp_path / "more", recipe="mine-pool")


def test_another_output_than_the_declared_one_is_an_error(mine: str) -> None:
    network = ImageNetwork(build, WAY, {"1": (6, 4, 4)})
    PROVIDERS.register("other", network, "tests")
    extractor = pipeline.FeatureExtractor("other", weights="random:0")
    with pytest.raises(RecipeError, match=r"rows of \(4, 4, 5\).*the recipe states \(4, 4, 6\)"):
        extractor(np.zeros((16, 16, 3), np.uint8))


@pytest.mark.parametrize("name", ["a@b", "a:b", "a-pool", "a/b", "a+b", " "])
def test_a_name_with_a_meaning_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="cannot be the name of a backbone"):
        pipeline.register_backbone(name, build, WAY, {"output": (5, 1, 1)})


def test_what_is_built_in_is_not_replaced() -> None:
    with pytest.raises(PluginError, match="'vgg19' is the name of one of the backbones"):
        pipeline.register_backbone("vgg19", build, WAY, {"output": (5, 1, 1)})
    with pytest.raises(RecipeError, match="no layers"):
        pipeline.register_backbone("own", build, WAY, {})
    with pytest.raises(UnexpectedType, match=r"not a Sequential; .*register_backbone"):
        pipeline.FeatureExtractor(build())  # type: ignore[arg-type]
