"""Layers by name, and the layout of their outputs: a row, a map, or tokens."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pipeline.images.recipes.schema import Pool, RecipeError
from pipeline.store.errors import UnknownName
from pipeline.store.wording import nearest

TOKENS: dict[str, Pool] = {
    "class": "class token",
    "distillation": "distillation token",
    "registers": "register tokens",
}
"""Tokens before the patch tokens, in order, with their names in `pool`."""

POOLS: dict[str, Pool] = {
    "grid": "none",
    "pool": "mean over cells",
    "max": "max over cells",
    "tokens": "all tokens",
    **TOKENS,
}
"""What is kept of a layer's output, by the word in a recipe's name, with its name in `pool`."""


_NAME = re.compile(rf"(?P<base>[^@]+?)(-(?P<pool>{'|'.join(POOLS)}))?(@(?P<layer>[^@:]+))?")

GRID_AXES, ROW_AXES = "row, cell_y, cell_x, channel", "row, channel"
TOKEN_AXES = "row, token, channel"


class LayerName(NamedTuple):
    """The parts of "<base>[-<pool>][@<layer>]"."""

    base: str
    pool: str | None  # a key of `POOLS`
    layer: str | None

    @classmethod
    def parse(cls, name: str) -> "LayerName | None":
        """Return the parts of a name, or None if it does not have this form."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(match["base"], match["pool"], match["layer"])

    def __str__(self) -> str:
        """Return the name."""
        return (
            self.base
            + (f"-{self.pool}" if self.pool else "")
            + (f"@{self.layer}" if self.layer else "")
        )


@dataclass(frozen=True)
class OutputLayout:
    """Output layout of a layer for one image."""

    kind: Literal["row", "maps", "channels last", "tokens"]
    """(channels,), (channels, y, x), (y, x, channels), or (tokens, channels): those of `prefix`,
    then one per cell, row by row."""
    cells: tuple[int, ...]  # (y, x); () for a row, and for tokens that form no square
    channels: int
    prefix: Mapping[str, int]  # names in `TOKENS` and numbers of the tokens before the cells
    count: int = 0  # of all tokens

    def tokens(self, pool: str) -> slice:
        """Return the slice of the tokens that `pool` names."""
        start = 0
        for name, count in self.prefix.items():
            if TOKENS[name] == pool:
                return slice(start, start + count)
            start += count
        there = " and ".join(TOKENS[name] for name in self.prefix) or "nothing"
        raise RecipeError(f"no {pool}; the tokens before the cells are {there}")

    def row(self, pool: str) -> tuple[tuple[int, ...], str]:
        """Return shape and axes of the row that `pool` produces."""
        if pool in TOKENS.values():
            tokens = self.tokens(pool)
            count = tokens.stop - tokens.start
            if count == 1:
                return (self.channels,), ROW_AXES
            return (count, self.channels), TOKEN_AXES
        if pool == "all tokens":
            if self.kind != "tokens":
                raise RecipeError("its output has no tokens")
            return (self.count, self.channels), TOKEN_AXES
        if self.kind == "tokens" and not self.cells:
            raise RecipeError(
                f"its {self.count} tokens do not form a square grid; keep all of them"
            )
        if pool == "none":
            return (*self.cells, self.channels), GRID_AXES if self.cells else ROW_AXES
        if not self.cells:
            raise RecipeError("its output is a row, without cells to average")
        return (self.channels,), ROW_AXES


def layout_of(
    shape: tuple[int, ...], prefix: Mapping[str, int] | None = None, channels_last: bool = False
) -> OutputLayout:
    """Return the layout of a layer's output of this shape, for one image.

    `prefix` names and counts the tokens that the network puts before the patch tokens; a layer
    whose tokens form a square without them has none. `channels_last` resolves maps that are as
    high as wide as deep, which are ambiguous.
    """
    if len(shape) == 1:
        return OutputLayout("row", (), shape[0], {})
    if len(shape) == 3:
        down, across = shape[0] == shape[1], shape[1] == shape[2]
        if down and (channels_last or not across):
            return OutputLayout("channels last", shape[:2], shape[2], {})
        return OutputLayout("maps", shape[1:], shape[0], {})
    if len(shape) == 2:
        for before in (dict(prefix or {}), dict[str, int]()):
            cells = shape[0] - sum(before.values())
            side = math.isqrt(max(cells, 0))
            if side > 1 and side**2 == cells:
                return OutputLayout("tokens", (side, side), shape[1], before, shape[0])
        return OutputLayout("tokens", (), shape[1], dict(prefix or {}), shape[0])
    raise RecipeError(f"its output per image is {shape}, expected a row, a square map, or tokens")


def unknown_layer(backbone: str, layer: str, names: Iterable[str]) -> UnknownName:
    """Return the error of an unknown layer, with the nearest or the top-level names."""
    names = list(names)
    near = nearest(layer, names)
    top = ", ".join(name for name in names if "." not in name)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {top} and layers within"
    return UnknownName(f"{backbone} has no layer {layer!r}; {hint}")


def unused_layer(backbone: str, layer: str) -> RecipeError:
    """Return the error of a layer outside the image path."""
    return RecipeError(
        f"images do not pass through the layer {layer!r} of {backbone}; choose one that they pass "
        "through"
    )
