"""Painting a scene: its background, then each object with its texture and a thin edge."""

import numpy as np
from PIL import Image, ImageFilter

from pipeline.datasets.phrases import hull
from pipeline.studies.scenes.backgrounds import draw_background
from pipeline.studies.scenes.shapes import silhouette, surface
from pipeline.studies.scenes.world import COLOURS, Box, Group, Scene

_MOST_TURN = 0.16  # radians: some variety, but a square does not become a diamond
_INK = {
    "yellow": (30, 30, 34),
    "pink": (30, 30, 34),
    "white": (158, 164, 178),
    "black": (142, 142, 148),
}
"""Colour of patterns, else white. Grey distinguishes striped black from striped white."""


def paint(scene: Scene, rng: np.random.Generator) -> tuple[Image.Image, list[Box]]:
    """Return the RGB image of a scene, SIZE pixels wide and high, and the box of each group."""
    image = draw_background(scene.setting, rng)
    return image, [_paint_group(image, group, rng) for group in scene.groups]


def _paint_group(image: Image.Image, group: Group, rng: np.random.Generator) -> Box:
    colour = COLOURS[group.colour]
    ink = _INK.get(group.colour, (255, 255, 255))
    edge = (96, 96, 102) if group.colour == "black" else tuple(c * 55 // 100 for c in colour)
    lean = float(rng.uniform(0, np.pi))
    painted = []
    for x, y in group.centres:
        mask = silhouette(group.shape, group.radius, float(rng.uniform(-_MOST_TURN, _MOST_TURN)))
        corner = x - group.radius, y - group.radius
        image.paste(edge, corner, mask)
        within = mask.filter(ImageFilter.MinFilter(3))
        image.paste(surface(group.texture, group.radius, lean, colour, ink), corner, within)
        left, top, right, bottom = mask.getbbox() or (0, 0, *mask.size)
        painted.append((corner[0] + left, corner[1] + top, corner[0] + right, corner[1] + bottom))
    x0, y0, x1, y1 = hull(painted)
    return int(x0), int(y0), int(x1), int(y1)
