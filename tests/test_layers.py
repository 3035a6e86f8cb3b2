"""The layout of what a layer gives, from its shape alone."""

import pytest

from pipeline.images.recipes import RecipeError
from pipeline.images.recipes.layers import GRID_AXES, ROW_AXES, TOKEN_AXES, layout_of

PREFIX = {"class": 1, "registers": 4}


@pytest.mark.parametrize(
    ("shape", "kind", "row"),
    [
        ((768,), "row", ((768,), ROW_AXES)),
        ((768, 7, 7), "maps", ((7, 7, 768), GRID_AXES)),
        ((7, 7, 768), "channels last", ((7, 7, 768), GRID_AXES)),
        ((7, 7, 7), "maps", ((7, 7, 7), GRID_AXES)),
        ((1, 1, 512), "channels last", ((1, 1, 512), GRID_AXES)),
        ((512, 1, 1), "maps", ((1, 1, 512), GRID_AXES)),
        ((261, 384), "tokens", ((16, 16, 384), GRID_AXES)),
        ((256, 384), "tokens", ((16, 16, 384), GRID_AXES)),
    ],
)
def test_shapes_say_their_layout(
    shape: tuple[int, ...], kind: str, row: tuple[tuple[int, ...], str]
) -> None:
    layout = layout_of(shape, PREFIX)
    assert (layout.kind, layout.row("none")) == (kind, row)


def test_tokens_have_names() -> None:
    layout = layout_of((261, 384), PREFIX)
    assert layout.tokens("class token") == slice(0, 1)
    assert layout.tokens("register tokens") == slice(1, 5)
    assert layout.row("class token") == ((384,), ROW_AXES)
    assert layout.row("register tokens") == ((4, 384), TOKEN_AXES)
    assert layout.row("mean over cells") == ((384,), ROW_AXES)
    with pytest.raises(RecipeError, match=r"no distillation token; .* cells are class"):
        layout.row("distillation token")
    with pytest.raises(RecipeError, match=r"no class token; .* cells are nothing"):
        layout_of((256, 384), PREFIX).row("class token")


def test_a_cube_of_channels_last_maps_is_known_by_its_network() -> None:
    assert layout_of((8, 8, 8), channels_last=True).kind == "channels last"


@pytest.mark.parametrize("shape", [(), (2, 3, 7, 7)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(RecipeError, match="expected a row, a square map, or tokens"):
        layout_of(shape)


@pytest.mark.parametrize("tokens", [1, 50])
def test_tokens_of_no_grid_are_kept_all_or_by_name(tokens: int) -> None:
    layout = layout_of((tokens, 384), {"class": 1})
    assert layout.row("all tokens") == ((tokens, 384), TOKEN_AXES)
    assert layout.row("class token") == ((384,), ROW_AXES)
    for pool in ("none", "mean over cells", "max over cells"):
        with pytest.raises(RecipeError, match=f"its {tokens} tokens do not form a square grid"):
            layout_of((tokens, 384)).row(pool)
