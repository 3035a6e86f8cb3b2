"""Backgrounds of scenes: plain colours, a sunset, grass, sky, sand, water, bricks and others."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from pipeline.studies.scenes.world import SIZE

Colour = tuple[int, int, int]

_PLAIN: dict[str, Colour] = {
    "white": (250, 250, 250),
    "black": (18, 18, 20),
    "grey": (150, 150, 152),
    "pink": (250, 205, 218),
    "light blue": (182, 220, 246),
}


def draw_background(setting: str, rng: np.random.Generator) -> Image.Image:
    """Return the RGB background, SIZE pixels wide and high, of one of `world.SETTINGS`."""
    if setting in _PLAIN:
        return Image.new("RGB", (SIZE, SIZE), _varied(_PLAIN[setting], rng, 5))
    return _DRAW[setting](rng)


def _sunset(rng: np.random.Generator) -> Image.Image:
    return _gradient([(72, 44, 116), (232, 96, 92), (255, 196, 104)])


def _grass(rng: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), _varied((104, 172, 62), rng, 8))
    _blades(image, rng, top=-8, number=500)
    return image


def _sky(rng: np.random.Generator) -> Image.Image:
    image = _gradient([(82, 150, 226), (176, 212, 244)])
    _clouds(image, rng, bottom=SIZE)
    return image


def _field(rng: np.random.Generator) -> Image.Image:
    horizon = int(rng.integers(112, 144))
    image = _gradient([(96, 164, 232), (190, 222, 246)])
    _clouds(image, rng, bottom=horizon - 20)
    image.paste(_varied((110, 176, 66), rng, 8), (0, horizon, SIZE, SIZE))
    _blades(image, rng, top=horizon, number=260)
    return image


def _sand(rng: np.random.Generator) -> Image.Image:
    image = _mottled((226, 200, 146), 12, rng)
    draw = ImageDraw.Draw(image)
    for x, y in rng.integers(0, SIZE, (260, 2)).tolist():
        draw.point((x, y), fill=(178, 146, 96))
    return image


def _water(rng: np.random.Generator) -> Image.Image:
    image = _gradient([(44, 146, 176), (22, 92, 140)])
    draw = ImageDraw.Draw(image)
    xs = np.arange(0, SIZE + 8, 8)
    for y in range(6, SIZE, 15):
        wave = y + 3.5 * np.sin(xs / rng.uniform(7, 9) + rng.uniform(0, 6))
        draw.line(list(zip(xs.tolist(), wave.tolist(), strict=True)), fill=(120, 200, 214), width=2)
    return image


def _night(rng: np.random.Generator) -> Image.Image:
    image = _gradient([(8, 10, 34), (30, 36, 84)])
    draw = ImageDraw.Draw(image)
    for x, y in rng.integers(0, SIZE, (90, 2)).tolist():
        draw.rectangle((x, y, x + int(rng.integers(2)), y), fill=(236, 236, 210))
    return image


def _brick(rng: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), (206, 196, 184))
    draw = ImageDraw.Draw(image)
    for row, y in enumerate(range(0, SIZE, 20)):
        for x in range(-20 * (row % 2), SIZE, 40):
            draw.rectangle((x, y, x + 37, y + 17), fill=_varied((164, 78, 58), rng, 14))
    return image


def _wood(rng: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), (92, 60, 34))
    draw = ImageDraw.Draw(image)
    for top in range(0, SIZE, 43):
        draw.rectangle((0, top, SIZE, top + 40), fill=_varied((190, 142, 92), rng, 12))
        for y in sorted(rng.integers(top + 4, top + 38, 5).tolist()):
            x = int(rng.integers(-60, 160))
            draw.line((x, y, x + int(rng.integers(60, 200)), y), fill=(158, 110, 66))
    return image


def _snow(rng: np.random.Generator) -> Image.Image:
    image = _mottled((226, 234, 244), 9, rng)
    draw = ImageDraw.Draw(image)
    for x, y in rng.integers(0, SIZE, (70, 2)).tolist():
        r = int(rng.integers(1, 3))
        draw.ellipse((x - r, y - r, x + r, y + r), fill=(255, 255, 255))
    return image


def _tiles(rng: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), (140, 146, 150))
    draw = ImageDraw.Draw(image)
    shift = int(rng.integers(0, 40))
    for y in range(-shift, SIZE, 40):
        for x in range(-shift, SIZE, 40):
            draw.rectangle((x, y, x + 37, y + 37), fill=_varied((214, 220, 222), rng, 5))
    return image


_DRAW: dict[str, Callable[[np.random.Generator], Image.Image]] = {
    "sunset": _sunset,
    "grass": _grass,
    "sky": _sky,
    "field": _field,
    "sand": _sand,
    "water": _water,
    "night": _night,
    "brick": _brick,
    "wood": _wood,
    "snow": _snow,
    "tiles": _tiles,
}


def _varied(colour: Colour, rng: np.random.Generator, most: int) -> Colour:
    """Return `colour` lightened or darkened by at most `most` grey levels."""
    shift = int(rng.integers(-most, most + 1))
    r, g, b = (min(255, max(0, c + shift)) for c in colour)
    return r, g, b


def _gradient(colours: list[Colour]) -> Image.Image:
    at = np.linspace(0, SIZE - 1, len(colours))
    rows = np.stack(
        [np.interp(np.arange(SIZE), at, channel) for channel in zip(*colours, strict=True)], axis=1
    )
    column = Image.fromarray(np.rint(rows).astype(np.uint8)[:, None, :])
    return column.resize((SIZE, SIZE), Image.Resampling.NEAREST)


def _mottled(colour: Colour, depth: int, rng: np.random.Generator) -> Image.Image:
    coarse = rng.integers(0, 256, (12, 12), dtype=np.uint8)
    patches = Image.fromarray(coarse).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    image = Image.new("RGB", (SIZE, SIZE), _varied(colour, rng, 4))
    darker = tuple(c - 2 * depth for c in colour)
    image.paste(darker, (0, 0), patches.point(lambda p: p // 2))
    return image


def _blades(image: Image.Image, rng: np.random.Generator, top: int, number: int) -> None:
    draw = ImageDraw.Draw(image)
    xs, leans = rng.integers(0, SIZE, number).tolist(), rng.integers(-3, 4, number).tolist()
    ys, greens = rng.integers(top, SIZE, number).tolist(), rng.integers(0, 3, number).tolist()
    shades = ((70, 136, 40), (136, 196, 84), (84, 152, 50))
    for x, y, lean, green in zip(xs, ys, leans, greens, strict=True):
        draw.line((x, y + 8, x + lean, y), fill=shades[green])


def _clouds(image: Image.Image, rng: np.random.Generator, bottom: int) -> None:
    small = Image.new("L", (SIZE // 4, SIZE // 4))
    draw = ImageDraw.Draw(small)
    for _ in range(max(2, bottom // 50)):
        x, y = rng.integers(0, SIZE // 4), rng.integers(4, bottom // 4)
        for dx, dy, r in ((-6, 1, 3), (-2, -1, 4), (3, 0, 4), (7, 1, 3)):
            cx, cy = int(x) + dx, int(y) + dy
            draw.ellipse((cx - r, cy - r // 2, cx + r, cy + r // 2), fill=220)
    soft = small.filter(ImageFilter.GaussianBlur(1.5)).resize((SIZE, SIZE))
    image.paste((255, 255, 255), (0, 0), soft)
