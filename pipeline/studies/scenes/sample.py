"""Random sampling of scenes: objects and positions, without accidental overlap."""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from pipeline.studies.scenes.world import (
    COLOURS,
    CONTAINERS,
    RADII,
    SETTINGS,
    SHAPES,
    SIZE,
    TEXTURES,
    Arrangement,
    Box,
    Group,
    Scene,
)

_ARRANGEMENT_SHARES = {
    Arrangement.ALONE: 0.2,
    Arrangement.SIDE_BY_SIDE: 0.26,
    Arrangement.STACKED: 0.26,
    Arrangement.INSIDE: 0.14,
    Arrangement.BETWEEN: 0.14,
}
_COUNT_SHARES = (0.46, 0.24, 0.17, 0.13)
_TEXTURE_SHARES = (0.4, 0.2, 0.2, 0.2)
_SIZE_SHARES = {"small": 0.3, "medium": 0.34, "large": 0.36}
_CORNERS = ("top left", "top right", "bottom left", "bottom right")
_CONTAINER_RADII = (86, 100)
_MARGIN, _GAP = 8, 16
_LEAST_CONTRAST = 150.0  # distance in RGB between a container and its content
T = TypeVar("T")


def pick(rng: np.random.Generator, items: Sequence[T], shares: Sequence[float] | None = None) -> T:
    """Return one of `items` at random: uniformly, or in proportion to `shares`."""
    if shares is None:
        return items[int(rng.integers(len(items)))]
    bounds = np.cumsum(shares)
    return items[int(np.searchsorted(bounds, rng.random() * bounds[-1], side="right"))]


def sample_scene(rng: np.random.Generator) -> Scene:
    """Return a scene drawn at random."""
    arrangement = pick(rng, tuple(_ARRANGEMENT_SHARES), tuple(_ARRANGEMENT_SHARES.values()))
    setting = pick(rng, tuple(SETTINGS))
    colours = [c for c in COLOURS if c not in SETTINGS[setting]]
    if arrangement is Arrangement.ALONE:
        return _alone(rng, setting, colours)
    if arrangement is Arrangement.INSIDE:
        return _inside(rng, setting, colours)
    number = 3 if arrangement is Arrangement.BETWEEN else 2
    position = pick(rng, ("row", "column")) if arrangement is Arrangement.BETWEEN else ""
    across = arrangement is Arrangement.SIDE_BY_SIDE or position == "row"
    shapes = [SHAPES[i] for i in rng.permutation(len(SHAPES))[:number]]
    chosen = [colours[i] for i in rng.permutation(len(colours))[:number]]
    groups = tuple(
        _group(rng, region, shape, colour, _count(rng, 4 if number == 2 else 2))
        for region, shape, colour in zip(_strips(number, across), shapes, chosen, strict=True)
    )
    return Scene(arrangement, setting, groups, position)


def _alone(rng: np.random.Generator, setting: str, colours: Sequence[str]) -> Scene:
    shape, colour, count = pick(rng, SHAPES), pick(rng, colours), _count(rng, 4)
    low, middle, high = _MARGIN, SIZE // 2, SIZE - _MARGIN
    if count == 1:
        position = pick(rng, ("middle", *_CORNERS))
        left, right = (low, middle - _GAP) if "left" in position else (middle + _GAP, high)
        top, bottom = (low, middle - _GAP) if "top" in position else (middle + _GAP, high)
        region = (left, top, right, bottom)
        if position == "middle":
            region = (middle - 52, middle - 52, middle + 52, middle + 52)
        return Scene(Arrangement.ALONE, setting, (_group(rng, region, shape, colour, 1),), position)
    position = pick(rng, ("row", "column", "scattered"))
    grid = {"row": (1, count), "column": (count, 1), "scattered": (2, 2)}[position]
    region = (low, low, high, high)
    if position == "row":
        region = (low, middle - 52, high, middle + 52)
    elif position == "column":
        region = (middle - 52, low, middle + 52, high)
    group = _group(rng, region, shape, colour, count, grid)
    if position in ("row", "column"):
        group = _in_line(group, along_x=position == "row")
    return Scene(Arrangement.ALONE, setting, (group,), position)


def _in_line(group: Group, along_x: bool) -> Group:
    """Return the group with its objects moved onto the line through the first one."""
    x, y = group.centres[0]
    centres = tuple((cx, y) if along_x else (x, cy) for cx, cy in group.centres)
    return Group(group.shape, group.colour, group.texture, group.size, group.radius, centres)


def _inside(rng: np.random.Generator, setting: str, colours: Sequence[str]) -> Scene:
    outer_shape = pick(rng, tuple(CONTAINERS))
    outer_colour = pick(rng, colours)
    radius = _between(rng, _CONTAINER_RADII)
    slack = SIZE // 2 - radius - _MARGIN
    x, y = (SIZE // 2 + _between(rng, (-slack, slack)) for _ in range(2))
    outer = Group(outer_shape, outer_colour, "plain", "large", radius, ((x, y),))
    behind = COLOURS[outer_colour]
    contrasting = (
        [c for c in COLOURS if math.dist(COLOURS[c], behind) >= _LEAST_CONTRAST]
        if outer_shape != "ring"
        else [c for c in colours if c != outer_colour]
    )
    shape = pick(rng, [s for s in SHAPES if s != outer_shape])
    count = _count(rng, 2)
    room = CONTAINERS[outer_shape] * radius
    size = "small" if count == 2 else pick(rng, ("small", "medium"))
    inner_radius = _between(rng, RADII[size])
    if count == 2:
        step = inner_radius + 3
        along_x = rng.random() < 0.5
        offsets = [(-step, 0), (step, 0)] if along_x else [(0, -step), (0, step)]
    else:
        angle = rng.uniform(0, 2 * math.pi)
        far = rng.uniform(0, room - inner_radius - 1)
        offsets = [(round(far * math.cos(angle)), round(far * math.sin(angle)))]
    centres = tuple((x + dx, y + dy) for dx, dy in offsets)
    texture = pick(rng, TEXTURES, _TEXTURE_SHARES)
    inner = Group(shape, pick(rng, contrasting), texture, size, inner_radius, centres)
    return Scene(Arrangement.INSIDE, setting, (outer, inner))


def _count(rng: np.random.Generator, most: int) -> int:
    return pick(rng, range(1, most + 1), _COUNT_SHARES[:most])


def _between(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    return int(rng.integers(bounds[0], bounds[1] + 1))


def _strips(number: int, across: bool) -> list[Box]:
    """Return `number` regions next to each other (`across`) or below each other."""
    length = (SIZE - 2 * _MARGIN - (number - 1) * _GAP) // number
    starts = [_MARGIN + k * (length + _GAP) for k in range(number)]
    low, high = _MARGIN, SIZE - _MARGIN
    return [
        (start, low, start + length, high) if across else (low, start, high, start + length)
        for start in starts
    ]


def _group(
    rng: np.random.Generator,
    region: Box,
    shape: str,
    colour: str,
    count: int,
    grid: tuple[int, int] | None = None,
) -> Group:
    """Return `count` objects in cells of a grid (rows, columns) over a region."""
    left, top, right, bottom = region
    rows, columns = grid or max(
        ((r, -(-count // r)) for r in range(1, count + 1)),
        key=lambda g: min((bottom - top) / g[0], (right - left) / g[1]),
    )
    height, width = (bottom - top) / rows, (right - left) / columns
    fitting = [s for s in RADII if 2 * RADII[s][1] <= min(height, width)]
    size = pick(rng, fitting, [_SIZE_SHARES[s] for s in fitting])
    radius = _between(rng, RADII[size])
    centres = []
    for cell in sorted(rng.permutation(rows * columns)[:count].tolist()):
        row, column = divmod(cell, columns)
        dx, dy = rng.uniform(-0.85, 0.85, 2) * (width / 2 - radius, height / 2 - radius)
        x, y = left + (column + 0.5) * width + dx, top + (row + 0.5) * height + dy
        centres.append((round(x), round(y)))
    texture = pick(rng, TEXTURES, _TEXTURE_SHARES)
    return Group(shape, colour, texture, size, radius, tuple(centres))
