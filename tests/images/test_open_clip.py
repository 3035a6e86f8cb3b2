"""The image towers of open_clip against its own transforms and forward, seeded weights."""

from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.images.network import RecipeNetwork
from pipeline.images.networks.open_clip_models import find_clip_model, open_clip
from pipeline.images.networks.open_clip_weights import load_clip_weights
from pipeline.images.recipes import Recipe, RecipeError, resolve_recipe
from pipeline.images.transforms import cut_crops, resize_image
from pipeline.images.weights import are_here, load_weights
from tests.images.networks.factories import TINY, add_tiny_models
from tests.images.odd_files import photo


@pytest.fixture(autouse=True)
def _tiny_models(tmp_path: Path) -> None:
    add_tiny_models(tmp_path)


def ours(recipe: Recipe, image: Image.Image) -> torch.Tensor:
    network = RecipeNetwork(recipe, load_weights(recipe, "random:0").state)
    return network(
        torch.from_numpy(cut_crops(resize_image(image, recipe.resize), network.window))[None]
    )


@pytest.mark.parametrize("name", TINY)
def test_rows_are_the_librarys(name: str) -> None:
    model = find_clip_model(f"open-clip:{name}")
    net, _, prepare = open_clip().create_model_and_transforms(name)
    weights = load_clip_weights(model, "random:0", net)
    net.load_state_dict(weights.state, strict=False)
    recipe = resolve_recipe(model.name)
    assert (recipe.norm, recipe.shape) == ("l2", (16,))
    # Both sides' weights are of one model, and so of one SHA-256.
    assert load_weights(recipe, "random:0").sha256 == weights.sha256
    for size in ((130, 91), (60, 99)):
        image = photo(1, *size)
        with torch.inference_mode():
            expected = net.eval().encode_image(prepare(image)[None], normalize=True)
        torch.testing.assert_close(ours(recipe, image), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "ViT-B-32.laion2b_s34b_b79k", "ViT-B-16-SigLIP.webli", "RN50-quickgelu.openai",
        "convnext_base_w_320.laion_aesthetic_s13b_b82k", "MobileCLIP-S1.datacompdr",
        "ViT-H-14-378-quickgelu.dfn5b", "EVA02-E-14-plus.laion2b_s9b_b144k",
    ],
)  # fmt: skip
def test_pictures_are_the_librarys(name: str) -> None:
    """What goes into the network, without building it."""
    recipe = resolve_recipe(f"open-clip:{name}")
    model, _, tag = name.partition(".")
    published = open_clip().get_pretrained_cfg(model, tag)
    size = open_clip().get_model_config(model)["vision_cfg"]["image_size"]
    transform = open_clip().image_transform(
        size,
        is_train=False,
        **{key: published[key] for key in ("mean", "std", "interpolation", "resize_mode")},
    )
    for image in (photo(2, 640, 427), photo(3, 301, 300)):
        window = cut_crops(resize_image(image, recipe.resize), recipe.crop)[0]
        said = recipe.normalise
        found = (window / said.scale - np.array(said.mean)) / np.array(said.std)
        np.testing.assert_allclose(
            found.transpose(2, 0, 1), transform(image).numpy(), atol=1e-5, rtol=0
        )


def test_a_picture_that_no_recipe_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"embed_dim": 4, "vision_cfg": {"image_size": [224, 448]}, "text_cfg": {}}
    monkeypatch.setattr(open_clip(), "get_model_config", lambda name: config)
    with pytest.raises(RecipeError, match=r"\[224, 448\].*square input"):
        resolve_recipe("open-clip:tiny-vit")


def test_weights_in_the_cache_give_a_recipe_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = resolve_recipe("open-clip:ViT-B-32.laion2b_s34b_b79k")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *file: None)
    assert not are_here(recipe)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *file: str(tmp_path))
    assert are_here(recipe)
    assert not are_here(resolve_recipe("open-clip:ViT-B-32"))
