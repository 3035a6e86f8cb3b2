"""Model of a scene, the only input of painter and grammar, so that image and captions agree."""

from dataclasses import dataclass
from enum import StrEnum

SIZE = 256  # width and height of an image in pixels

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

Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels; y grows downwards


class Arrangement(StrEnum):
    """Arrangement of the groups of a scene."""

    ALONE = "alone"
    SIDE_BY_SIDE = "side by side"
    STACKED = "stacked"
    INSIDE = "inside"
    BETWEEN = "between"


@dataclass(frozen=True)
class Group:
    """One to four equal objects."""

    shape: str  # from SHAPES; then COLOURS, TEXTURES, RADII
    colour: str
    texture: str
    size: str
    radius: int  # radius of each object's enclosing circle in pixels
    centres: tuple[tuple[int, int], ...]  # centres of the objects, (x, y) in pixels

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
    """Model of an image."""

    arrangement: Arrangement
    """ALONE has one group; SIDE_BY_SIDE two, from left to right; STACKED two, from top to bottom;
    INSIDE the container first, then its content; BETWEEN three, from left to right or from top to
    bottom. Groups differ in shape and in colour."""
    setting: str  # the background, from SETTINGS
    groups: tuple[Group, ...]  # in that order, which is also the drawing order
    position: str = ""
    """ALONE: "middle", a corner ("top left"), "row", "column" or "scattered"; BETWEEN: "row" or
    "column"; else ""."""
