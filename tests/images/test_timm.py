"""Models of timm: what is refused, and with which remedy; features are in test_parity.py."""

from pathlib import Path

import pytest

from pipeline.images.backbones import timm_backbones as networks
from pipeline.images.recipes import RecipeError, resolve_recipe
from pipeline.images.weights import WeightsError, are_here, load_weights, published_file
from pipeline.store.errors import UnknownName

timm = pytest.importorskip("timm", reason="needs the extra [timm]")

REFUSED = {
    "test_vitt": "no model 'test_vitt'; did you mean test_vit",
    "resnet18.a9_in1k": r"Invalid pretrained tag.*did you mean a\d_in1k",
    "test_vit-gird": "with one of the parts grid, pool, max, tokens, class, dist",
    "test_vit@": "cannot parse",
    "test_vit@blocs.1": r"did you mean blocks\.1",
    "test_vit@attn_pool": "no layer 'attn_pool'",
    "test_vit-registers": "no register tokens; the tokens before the cells are class token",
    "test_resnet-grid@global_pool": "its output is a row, which has no cells",
    "test_resnet-class": "no class token; the tokens before the cells are nothing",
    "swin_tiny_patch4_window7_224@layers.1.blocks.0.attn": r"has 16 outputs of \(49, 192\)",
    "crossvit_9_240-grid": "has a list, expected one",
    "vit_base_patch16_sapiens2": "needs 1024 x 768 pixels",
    "deepseek_vit_412m": "needs crop mode 'border'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_what_can(name: str) -> None:
    with pytest.raises((RecipeError, UnknownName), match=REFUSED[name]):
        resolve_recipe(f"timm:{name}")


def test_pictures_have_the_test_size() -> None:
    recipe = resolve_recipe("timm:resnet50")
    config = timm.get_pretrained_cfg("resnet50")
    assert (config.input_size[1], config.test_input_size[1]) == (224, 288)
    assert (recipe.crop.size, recipe.resize.size) == (288, int(288 / config.test_crop_pct))


def test_without_a_network_it_is_said_what_to_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = resolve_recipe("timm:test_resnet")

    def create(name: str, pretrained: bool = False) -> object:
        raise OSError("no route to host\nand more")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("pipeline.images.networks.hub._unreachable", lambda: None)
    assert not are_here(recipe)
    backbone = networks.timm_backbone(recipe.backbone)
    assert backbone.pretrained is not None
    folder = "models--timm--test_resnet.r160_in1k"
    remedy = rf"hf download timm/test_resnet.r160_in1k.*{folder}.*{tmp_path}"
    with monkeypatch.context() as patch:
        patch.setattr(networks, "create_timm_model", create)
        with pytest.raises(WeightsError, match=rf"\(no route to host\); .*{remedy}"):
            backbone.pretrained()
    (tmp_path / folder / "snapshots" / "0").mkdir(parents=True)
    (tmp_path / folder / "snapshots" / "0" / "model.safetensors").touch()
    assert are_here(recipe)


def test_weights_of_another_network_are_refused() -> None:
    lite = published_file(resolve_recipe("efficientnet-lite0").weights)
    with pytest.raises(WeightsError, match=r"does not fit timm:test_resnet.* missing: conv1"):
        load_weights(resolve_recipe("timm:test_resnet"), str(lite))
