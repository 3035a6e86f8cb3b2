"""Weights: from a file, by seed, or refused with the first keys that differ."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipeline.images.weights import WeightsError, load_weights
from pipeline.recipes import RECIPES

LITE = RECIPES["efficientnet-lite0-pool"]


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
    refused({"model": state}, "plain state dict")
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


def test_imagenet_weights_that_cannot_be_had_name_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*arguments: object, **options: object) -> None:
        raise OSError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    with pytest.raises(WeightsError, match=r"resnet152-394f9c45\.pth.*--weights PATH"):
        load_weights(RECIPES["resnet152-grid"])
