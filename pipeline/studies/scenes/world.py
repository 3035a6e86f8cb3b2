"""Model of a scene before it is drawn or captioned: groups of equal objects with positions.

The painter and the grammar have no other input, so that an image and its captions always agree.
"""

from dataclasses import dataclass
from enum import StrEnum

SIZE = 256
"""Width and height of an image in pixels."""

SHAPES = (
    "circle", "square", "triangle", "star", "ring", "cross",
    "heart", "diamond", "hexagon", "crescent", "flower", "fish",
)  # fmt: skip
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (222, 36, 40),
    "orange": (248, 132, 24),
    "yellow": (252, 218, 44),
    "green": (30, 152, 60),
    "blue": (36, 84, 216),
    "purple": (132, 48, 172),
    "pink": (248, 132, 190),
    "brown": (122, 72, 36),
    "black": (24, 24, 28),
    "white": (250, 250, 248),
}
TEXTURES = ("plain", "striped", "dotted", "checked")
RADII: dict[str, tuple[int, int]] = {"small": (17, 20), "medium": (25, 28), "large": (42, 50)}
"""Minimal and maximal radius in pixels of each size; captions mention only small and large."""

SETTINGS: dict[str, frozenset[str]] = {
    "white": frozenset({"white", "yellow"}),
    "black": frozenset({"black", "brown", "purple"}),
    "grey": frozenset(),
    "pink": frozenset({"pink", "white"}),
    "light blue": frozenset({"white"}),
    "sunset": frozenset({"orange", "pink", "red"}),
    "grass": frozenset({"green"}),
    "sky": frozenset({"blue", "white"}),
    "field": frozenset({"blue", "green", "white"}),
    "sand": frozenset({"yellow", "white", "orange"}),
    "water": frozenset({"blue", "green"}),
    "night": frozenset({"black", "blue", "purple"}),
    "brick": frozenset({"red", "brown", "orange"}),
    "wood": frozenset({"brown", "orange"}),
    "snow": frozenset({"white"}),
    "tiles": frozenset({"white"}),
}
"""Background to the colours that are invisible on it."""

CONTAINERS = {"circle": 0.78, "square": 0.62, "ring": 0.54, "diamond": 0.56, "hexagon": 0.72}
"""Shapes that can contain objects, and the radius of their interior relative to their own."""

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; y grows downwards."""


class Layout(StrEnum):
    """Arrangement of the groups of a scene."""

    ALONE = "alone"
    SIDE_BY_SIDE = "side by side"
    STACKED = "stacked"
    INSIDE = "inside"
    BETWEEN = "between"


@dataclass(frozen=True)
class Group:
    """One to four equal objects.

    Attributes
    ----------
    shape, colour, texture, size : str. From SHAPES, COLOURS, TEXTURES, RADII.
    radius : int. Radius of each object's enclosing circle in pixels.
    centres : tuple. Centres of the objects, (x, y) in pixels.
    """

    shape: str
    colour: str
    texture: str
    size: str
    radius: int
    centres: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """Number of objects."""
        return len(self.centres)

    @property
    def box(self) -> Box:
        """The bounding box of all objects."""
        xs, ys = zip(*self.centres, strict=True)
        r = self.radius
        return min(xs) - r, min(ys) - r, max(xs) + r, max(ys) + r


@dataclass(frozen=True)
class Scene:
    """Model of an image.

    Attributes
    ----------
    layout : Layout. ALONE has one group; SIDE_BY_SIDE two, from left to right; STACKED two, from
        top to bottom; INSIDE the container first, then its content; BETWEEN three, from left to
        right or from top to bottom. Groups differ in shape and in colour.
    setting : str. The background, from SETTINGS.
    groups : tuple of Group. In that order, which is also the drawing order.
    place : str. ALONE: "middle", a corner ("top left"), "row", "column" or "scattered"; BETWEEN:
        "row" or "column"; else "".
    """

    layout: Layout
    setting: str
    groups: tuple[Group, ...]
    place: str = ""
