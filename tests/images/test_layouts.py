"""Rows that are made of what a layer gives, in every layout."""

from dataclasses import replace
from functools import partial
from typing import cast

import pytest
import torch

from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.network import pooled
from pipeline.images.recipes import RECIPES, RecipeError
from pipeline.images.recipes.layers import layout_of
from pipeline.images.recipes.schema import Pool


@pytest.mark.parametrize("pool", ["none", "mean over cells", "class token", "register tokens"])
@pytest.mark.parametrize("kind", ["maps", "channels last", "tokens", "row"])
def test_rows_are_made_of_every_layout(kind: str, pool: str) -> None:
    """The cells of two images, laid out in each way, and what must come of them."""
    recipe = replace(RECIPES["efficientnet-lite0-pool"], pool=cast(Pool, pool))
    backbone = replace(
        BACKBONES["efficientnet-lite0"],
        layout=partial(layout_of, prefix={"class": 1, "registers": 2}),
    )
    cells = torch.arange(2 * 3 * 3 * 5).view(2, 3, 3, 5).float()
    prefix = -torch.arange(2 * 3 * 5).view(2, 3, 5).float()
    output, whole = {
        "maps": (cells.permute(0, 3, 1, 2), cells),
        "channels last": (cells, cells),
        "tokens": (torch.cat([prefix, cells.flatten(1, 2)], dim=1), cells),
        "row": (cells[:, 0, 0], cells[:, 0, 0]),
    }[kind]
    expected = {
        "none": whole,
        "mean over cells": None if kind == "row" else cells.mean(dim=(1, 2)),
        "class token": prefix[:, 0] if kind == "tokens" else None,
        "register tokens": prefix[:, 1:] if kind == "tokens" else None,
    }[pool]
    if expected is None:
        with pytest.raises(RecipeError, match="set another pool, or read another layer"):
            pooled(output, recipe, backbone)
    else:
        torch.testing.assert_close(pooled(output, recipe, backbone), expected)
