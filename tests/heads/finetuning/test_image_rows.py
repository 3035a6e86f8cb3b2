"""Random crops, and the network that sees them beside the one that extracts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import RandomResizedCrop

from pipeline.heads.finetuning.augmentation import Augmentation, augmented, random_crop
from pipeline.heads.finetuning.network import LearningNetwork
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Normalise, resolve_recipe
from pipeline.images.weights import load_weights
from tests.heads.finetuning.factories import add_tiny


def test_crops_are_distributed_as_torchvisions() -> None:
    """Area and aspect; the places are uniform in both."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    blank = Image.new("L", (400, 300))
    theirs, ours = [], []
    for _ in range(3000):
        _, _, h, w = RandomResizedCrop.get_params(blank, [0.08, 1.0], [3 / 4, 4 / 3])
        theirs.append((w * h, w / h))
        left, top, right, bottom = random_crop(400, 300, 0.08, rng)
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 300
        ours.append(((right - left) * (bottom - top), (right - left) / (bottom - top)))
    for quantile in (0.1, 0.5, 0.9):
        np.testing.assert_allclose(
            np.quantile(ours, quantile, axis=0), np.quantile(theirs, quantile, axis=0), rtol=0.08
        )


@pytest.mark.parametrize("size", [(1, 1), (1, 90), (301, 7), (64, 64)])
def test_pictures_of_odd_shapes(size: tuple[int, int]) -> None:
    recipe = resolve_recipe("efficientnet-lite0-pool")
    picture = Image.fromarray(
        np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), np.uint8)
    )
    drawn = Augmentation(3, 1.0)
    crops = [
        augmented(picture, recipe, 1.0, drawn.generator(epoch, name))
        for epoch, name in ((0, "a"), (0, "a"), (1, "a"), (0, "b"))
    ]
    assert crops[0].shape == (224, 224, 3)
    np.testing.assert_array_equal(crops[0], crops[1])
    if size == (64, 64):
        # A square picture as a whole, as it is or mirrored.
        whole = np.asarray(picture.resize((224, 224), Image.Resampling.BILINEAR))
        assert all((c == whole).all() or (c[:, ::-1] == whole).all() for c in crops)


_BLUE_FIRST = Normalise(1.0, (104.0, 117.0, 123.0), (1.0, 1.0, 1.0), "BGR")


@pytest.mark.parametrize(
    ("name", "weights", "changes"),
    [
        ("efficientnet-lite0-pool", "imagenet", {}),
        ("tiny", "random:0", {"normalise": _BLUE_FIRST, "norm": "l2"}),
    ],
)
def test_the_network_that_learns_is_the_one_that_extracts(
    name: str, weights: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_tiny(monkeypatch)
    recipe = replace(resolve_recipe(name), **changes)
    state = load_weights(recipe, weights).state
    size = recipe.crop.size
    windows = torch.randint(0, 256, (1, size, size, 3), generator=torch.Generator().manual_seed(0))
    learning = LearningNetwork(recipe, backbone_named(recipe.backbone), state).train()
    rows = learning(windows.float())
    expected = RecipeNetwork(recipe, state)(windows.to(torch.uint8)[:, None])
    torch.testing.assert_close(rows.detach(), expected, rtol=1e-3, atol=1e-4)
    rows.square().sum().backward()
    # Statistics of batch norms stay, though it was in training.
    kept = zip(learning.own_names, learning.state_dict().values(), strict=True)
    assert all(torch.equal(state[own], tensor) for own, tensor in kept)
