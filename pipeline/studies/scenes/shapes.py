"""Silhouettes and textures of objects, drawn large and downsampled for smooth edges."""

import math
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

_SUPERSAMPLING = 4

Point = tuple[float, float]
"""A point in the object's frame: the enclosing circle has radius 1, y grows downwards."""


def silhouette(shape: str, radius: int, angle: float) -> Image.Image:
    """Return the mask of a shape, mode "L", 2 * radius pixels wide; `angle` in radians."""
    scale = radius * _SUPERSAMPLING
    mask = Image.new("L", (2 * scale, 2 * scale))
    _DRAW[shape](_Pen(mask, angle))
    return mask.reduce(_SUPERSAMPLING)


def surface(
    texture: str, radius: int, angle: float, colour: tuple[int, int, int], ink: tuple[int, int, int]
) -> Image.Image:
    """Return an RGB tile, 2 * radius pixels wide and high, of `colour` with a pattern in `ink`."""
    if texture == "plain":
        return Image.new("RGB", (2 * radius, 2 * radius), colour)
    axis = (np.arange(2 * radius * _SUPERSAMPLING) + 0.5) / _SUPERSAMPLING - radius
    x, y = axis[None, :], axis[:, None]
    u, v = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
    if texture == "striped":
        inked = (u / max(7.0, 0.4 * radius)) % 1 < 0.42
    elif texture == "checked":
        period = max(10.0, 0.6 * radius)
        inked = ((u / period) % 1 < 0.5) ^ ((v / period) % 1 < 0.5)
    else:
        period = max(8.0, 0.45 * radius)
        inked = np.hypot((u / period) % 1 - 0.5, (v / period) % 1 - 0.5) < 0.3
    share = Image.fromarray(inked.astype(np.uint8) * 255).reduce(_SUPERSAMPLING)
    tile = Image.new("RGB", share.size, colour)
    tile.paste(ink, (0, 0), share)
    return tile


class _Pen:
    """Draws on a mask in an object's own rotated frame."""

    def __init__(self, mask: Image.Image, angle: float) -> None:
        self._mask = mask
        self._draw = ImageDraw.Draw(mask)
        self._scale = mask.width / 2
        self._cos, self._sin = math.cos(angle), math.sin(angle)

    def polygon(self, points: list[Point]) -> None:
        """Fill a polygon."""
        self._draw.polygon([self._place(p) for p in points], fill=255)

    def disc(self, centre: Point, radius: float, fill: int = 255) -> None:
        """Fill a disc, or clear it with `fill` 0."""
        x, y = self._place(centre)
        r = radius * self._scale
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)

    def _place(self, point: Point) -> Point:
        x, y = point
        return (
            self._scale * (1 + self._cos * x - self._sin * y),
            self._scale * (1 + self._sin * x + self._cos * y),
        )


def _around(number: int, radius: float = 1.0, start: float = -math.pi / 2) -> list[Point]:
    """Return `number` points evenly around a circle, the first at the top."""
    angles = [start + 2 * math.pi * k / number for k in range(number)]
    return [(radius * math.cos(a), radius * math.sin(a)) for a in angles]


def _star(pen: _Pen) -> None:
    outer, inner = _around(5), _around(5, 0.42, -math.pi / 2 + math.pi / 5)
    pen.polygon([p for pair in zip(outer, inner, strict=True) for p in pair])


def _ring(pen: _Pen) -> None:
    pen.disc((0, 0), 1)
    pen.disc((0, 0), 0.58, fill=0)


def _cross(pen: _Pen) -> None:
    w, h = 0.3, 0.94
    pen.polygon([(-w, -h), (w, -h), (w, h), (-w, h)])
    pen.polygon([(-h, -w), (h, -w), (h, w), (-h, w)])


def _heart(pen: _Pen) -> None:
    points = []
    for t in np.linspace(0, 2 * math.pi, 60, endpoint=False):
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 17, -(y + 2) / 17))
    pen.polygon(points)


def _crescent(pen: _Pen) -> None:
    pen.disc((0, 0), 1)
    pen.disc((0.46, -0.12), 0.78, fill=0)


def _flower(pen: _Pen) -> None:
    for petal in _around(6, 0.64):
        pen.disc(petal, 0.35)
    pen.disc((0, 0), 0.4)
    pen.disc((0, 0), 0.2, fill=0)


def _fish(pen: _Pen) -> None:
    body = [(0.3 + 0.66 * math.cos(t), 0.46 * math.sin(t)) for t in np.linspace(0, 2 * math.pi, 40)]
    pen.polygon(body)
    pen.polygon([(-0.25, 0), (-0.86, -0.48), (-0.7, 0), (-0.86, 0.48)])
    pen.disc((0.62, -0.12), 0.08, fill=0)


_DRAW: dict[str, Callable[[_Pen], None]] = {
    "circle": lambda pen: pen.disc((0, 0), 1),
    "square": lambda pen: pen.polygon(_around(4, start=-math.pi / 4)),
    "triangle": lambda pen: pen.polygon(_around(3)),
    "star": _star,
    "ring": _ring,
    "cross": _cross,
    "heart": _heart,
    "diamond": lambda pen: pen.polygon([(0, -1), (0.72, 0), (0, 1), (-0.72, 0)]),
    "hexagon": lambda pen: pen.polygon(_around(6, start=0)),
    "crescent": _crescent,
    "flower": _flower,
    "fish": _fish,
}
