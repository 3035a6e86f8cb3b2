"""Painting a scene: its background, then each object with its surface and a thin edge."""

import numpy as np
from PIL import Image, ImageFilter

from pipeline.datasets.scenes.backgrounds import draw_background
from pipeline.datasets.scenes.shapes import silhouette, surface
from pipeline.datasets.scenes.world import COLOURS, Group, Scene

_MOST_TURN = 0.16
"""Radians: enough for variety, too little to make a diamond of a square."""
_INK = {
    "yellow": (30, 30, 34),
    "pink": (30, 30, 34),
    "white": (158, 164, 178),
    "black": (142, 142, 148),
}
"""Colour of the patterns; white where it is not named. Grey keeps striped black from being
striped white."""


def paint(scene: Scene, rng: np.random.Generator) -> Image.Image:
    """Return the picture of a scene, RGB, `world.SIZE` pixels wide and high."""
    image = draw_background(scene.setting, rng)
    for group in scene.groups:
        _paint_group(image, group, rng)
    return image


def _paint_group(image: Image.Image, group: Group, rng: np.random.Generator) -> None:
    colour = COLOURS[group.colour]
    ink = _INK.get(group.colour, (255, 255, 255))
    edge = (96, 96, 102) if group.colour == "black" else tuple(c * 55 // 100 for c in colour)
    lean = float(rng.uniform(0, np.pi))
    for x, y in group.centres:
        mask = silhouette(group.shape, group.radius, float(rng.uniform(-_MOST_TURN, _MOST_TURN)))
        corner = x - group.radius, y - group.radius
        image.paste(edge, corner, mask)
        within = mask.filter(ImageFilter.MinFilter(3))
        image.paste(surface(group.texture, group.radius, lean, colour, ink), corner, within)
