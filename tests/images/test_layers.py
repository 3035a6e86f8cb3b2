"""Any layer of any network: rows are those of a forward hook, for each kind of network and pool."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.layer_recipes import layer_outputs
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import RecipeError, resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.store.errors import UnknownName
from tests.images.networks.small import use_narrow_torchvision

# By model, the words for the pool of some layers: of a map, of tokens, and "" for all there is.
# `python -m bench.layers` compares more layers of more models.
LAYERS: dict[str, dict[str, tuple[str, ...]]] = {
    "torchvision:resnet18": {"layer2": ("pool", "max"), "layer4.1.bn1": ("",)},
    "timm:test_vit": {
        "blocks.1": ("", "pool", "max", "tokens"),
        "blocks.0.mlp.fc1": ("class", "grid"),
    },
}


def by_hook(net: nn.Module, layer: str, x: Tensor) -> Tensor:
    """Return the output of a layer, as a user would read it."""
    seen: list[Tensor] = []
    handle = net.get_submodule(layer).register_forward_hook(lambda _, __, y: seen.append(y.clone()))
    with torch.inference_mode():
        net(x)
    handle.remove()
    return seen[0]


def reduced(output: Tensor, pool: str, prefix: int) -> Tensor:
    """Return what a word for the pool keeps of an (n, ...) output; `prefix` tokens are no cells."""
    if output.ndim == 2:
        return output
    if output.ndim == 3:
        if pool in ("tokens", "class"):
            return output if pool == "tokens" else output[:, 0]
        cells = output[:, prefix:]
    else:
        cells = output.flatten(2).transpose(1, 2)
    if pool == "max":
        return cells.max(1).values
    return cells.mean(1) if pool == "pool" else cells


@pytest.mark.parametrize("model", LAYERS)
def test_rows_are_those_of_a_hook(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_narrow_torchvision(monkeypatch)
    if model.startswith("timm:"):
        pytest.importorskip("timm", reason="needs the extra [timm]")
    usual = resolve_recipe(model)
    loaded = load_weights(usual, "random:0")
    net = backbone_named(usual.backbone).filled(dict(loaded.state)).eval()
    size = usual.crop.size
    generator = torch.Generator().manual_seed(0)
    windows = torch.randint(0, 255, (2, 1, size, size, 3), dtype=torch.uint8, generator=generator)
    for layer, words in LAYERS[model].items():
        for number, word in enumerate(words):
            recipe = resolve_recipe(f"{model}{word and '-'}{word}@{layer}")
            engine = ("reference", "fast")[number % 2]
            network = RecipeNetwork(recipe, dict(loaded.state), "cpu", engine)
            expected = by_hook(net, layer, network.normalised(windows.flatten(0, 1)).contiguous())
            kept = reduced(expected, word, 1).reshape(2, *recipe.shape)
            np.testing.assert_allclose(network(windows), kept, rtol=2e-4, atol=2e-4)


def test_a_layer_with_several_outputs_is_read_as_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    use_narrow_torchvision(monkeypatch)
    layer = "encoder.layers.encoder_layer_0.self_attention"
    recipe = resolve_recipe(f"torchvision:vit_b_32-tokens@{layer}")
    state = dict(load_weights(recipe, "random:0").state)
    size = recipe.crop.size
    windows = torch.full((1, 1, size, size, 3), 9, dtype=torch.uint8)
    fast = RecipeNetwork(recipe, state)
    assert fast.remark == ""
    reference = RecipeNetwork(recipe, state, engine="reference")
    np.testing.assert_allclose(fast(windows), reference(windows), atol=1e-5)


WRONG = {
    "resnet152-pool@layer5": (UnknownName, r"no layer 'layer5'; did you mean layer\d"),
    "resnet152-class@layer3": (RecipeError, "no class token; the tokens before the cells are noth"),
    "resnet152-tokens@layer3": (RecipeError, "its output has no tokens"),
    "resnet152-grid@avgpool.x": (UnknownName, "no layer 'avgpool.x'"),
    "vgg19-fc7-max@classifier.0": (RecipeError, "its output is a row"),
    "torchvision:resnet19": (UnknownName, "has no model 'resnet19'; did you mean resnet18"),
    "torchvision:resnet18.V9": (UnknownName, "no weights 'V9'; known: IMAGENET1K_V1"),
    "torchvision:resnet18-pool": (RecipeError, "torchvision:resnet50-pool@layer3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_refused_with_what_can(name: str) -> None:
    kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        resolve_recipe(name)


def test_a_layer_keeps_image_crops_and_weights_of_its_recipe() -> None:
    base, other = resolve_recipe("resnet152-pool-10crop"), "resnet152-pool-10crop@layer3.0.conv1"
    recipe = resolve_recipe(other)
    assert (recipe.name, recipe.tap, recipe.shape) == (other, "layer3.0.conv1", (256,))
    assert (recipe.activation, base.activation) == ("none", "relu")
    same = ("resize", "crop", "normalise", "weights", "combine_crops", "pool", "trained_on")
    assert all(getattr(recipe, key) == getattr(base, key) for key in same)
    assert resolve_recipe("resnet152-max").activation == "relu"  # the layer is still its own


def test_torchvision_has_the_transforms_of_its_weights() -> None:
    from torchvision.models import get_model_weights

    for model in ("resnet50", "efficientnet_v2_l", "vit_b_16.IMAGENET1K_SWAG_E2E_V1"):
        name, _, tag = model.partition(".")
        weights = get_model_weights(name)
        way = (weights[tag] if tag else weights.DEFAULT).transforms()
        recipe = resolve_recipe(f"torchvision:{model}")
        rule = recipe.resize.size, recipe.resize.interpolation, recipe.crop.size
        assert rule == (*way.resize_size, way.interpolation.value, *way.crop_size)
        assert (list(recipe.normalise.mean), list(recipe.normalise.std)) == (way.mean, way.std)


def test_a_network_that_is_not_built_without_data_is_built_and_emptied() -> None:
    recipe = resolve_recipe("torchvision:regnet_y_400mf-pool@trunk_output.block2")
    assert recipe.shape == (104,)
    outline = backbone_named(recipe.backbone).outline()
    assert all(weight.is_meta for weight in outline.parameters())


def test_layers_are_listed_in_the_order_of_the_network() -> None:
    recipe = resolve_recipe("torchvision:resnet18")
    layers = dict(layer_outputs(recipe, backbone_named(recipe.backbone)))
    assert [*layers][:2] == ["conv1", "bn1"]
    assert (layers["layer3"], layers["avgpool"]) == ((256, 14, 14), (512, 1, 1))
