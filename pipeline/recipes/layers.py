"""Layers by name, and the layout of what they give: a row, a map, or tokens."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.recipes.schema import Pool, RecipeError, UnknownRecipe
from pipeline.wording import nearest

TOKENS: dict[str, Pool] = {
    "class": "class token",
    "distillation": "distillation token",
    "registers": "register tokens",
}
"""The tokens that stand before those of the patches, in their order, and what `pool` calls them."""

GRID_AXES, ROW_AXES = "row, cell_y, cell_x, channel", "row, channel"
TOKEN_AXES = "row, token, channel"


@dataclass(frozen=True)
class Layout:
    """What a layer gives for one image.

    Attributes
    ----------
    kind : "row", (channels,); "maps", (channels, y, x); "channels last", (y, x, channels); or
        "tokens", (tokens, channels): those of `prefix`, then one a cell, row by row.
    cells : (y, x); () for a row.
    channels : their number.
    prefix : name and number of the tokens before those of the cells, of `TOKENS`.
    """

    kind: Literal["row", "maps", "channels last", "tokens"]
    cells: tuple[int, ...]
    channels: int
    prefix: Mapping[str, int]

    def tokens(self, pool: str) -> slice:
        """Return where the tokens are that `pool` names.

        Raises
        ------
        RecipeError
            There are none.
        """
        start = 0
        for name, count in self.prefix.items():
            if TOKENS[name] == pool:
                return slice(start, start + count)
            start += count
        there = " and ".join(TOKENS[name] for name in self.prefix) or "nothing"
        raise RecipeError(f"there is no {pool}; before the cells it has {there}")

    def row(self, pool: str) -> tuple[tuple[int, ...], str]:
        """Return shape and axes of the row that `pool` makes of it.

        Raises
        ------
        RecipeError
            It has no cells to take the mean over, or no such tokens.
        """
        if pool in TOKENS.values():
            found = self.tokens(pool)
            count = found.stop - found.start
            if count == 1:
                return (self.channels,), ROW_AXES
            return (count, self.channels), TOKEN_AXES
        if pool == "none":
            return (*self.cells, self.channels), GRID_AXES if self.cells else ROW_AXES
        if not self.cells:
            raise RecipeError("it gives a row, which has no cells to take the mean over")
        return (self.channels,), ROW_AXES


def layout_of(
    shape: tuple[int, ...], prefix: Mapping[str, int] | None = None, channels_last: bool = False
) -> Layout:
    """Return the layout of a layer's output.

    Parameters
    ----------
    shape : of its output for one image.
    prefix : name and number of the tokens that the network puts before those of the patches. A
        layer whose tokens are a square without them has none of them.
    channels_last : of maps as high as wide as deep, which do not say.

    Raises
    ------
    RecipeError
        It is neither a row nor a map nor tokens of a square grid.
    """
    if len(shape) == 1:
        return Layout("row", (), shape[0], {})
    if len(shape) == 3:
        down, across = shape[0] == shape[1], shape[1] == shape[2]
        if down and (channels_last or not across):
            return Layout("channels last", shape[:2], shape[2], {})
        return Layout("maps", shape[1:], shape[0], {})
    if len(shape) == 2:
        for before in (dict(prefix or {}), dict[str, int]()):
            cells = shape[0] - sum(before.values())
            side = math.isqrt(max(cells, 0))
            if side > 1 and side**2 == cells:
                return Layout("tokens", (side, side), shape[1], before)
    raise RecipeError(
        f"it gives {shape} for an image, which is no row, no map, and no tokens of a square grid"
    )


def unknown_layer(backbone: str, layer: str, names: Iterable[str]) -> RecipeError:
    """Return the refusal of a layer's name, with the names near it or those at the top."""
    names = list(names)
    near = nearest(layer, names)
    top = ", ".join(name for name in names if "." not in name)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {top} and layers within"
    return UnknownRecipe(f"{backbone} has no layer {layer!r} to read; {hint}")


def unused_layer(backbone: str, layer: str) -> RecipeError:
    """Return the refusal of a layer that no image passes through."""
    return RecipeError(
        f"{backbone} has a layer {layer!r}, but its images do not pass through it; name a layer "
        "that they pass through"
    )
