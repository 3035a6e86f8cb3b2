"""Frames and sound of an event."""

import math

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.studies.scenes.backgrounds import draw_background
from pipeline.studies.scenes.moving.events import KINDS, SIZE, Actor, Event
from pipeline.studies.scenes.shapes import silhouette
from pipeline.studies.scenes.world import COLOURS

FPS = 8
FRAMES = 16  # frames of one event: two seconds. The event is within `_ACTIVE`; the rest is still.
RATE = 16_000  # sound samples per second
_ACTIVE = (2, 14)
_WAY = 12
_LOWEST, _STEP = 300.0, 2**0.4
_NOISE = 0.002

_OFFSETS = {"right": (1, 0), "left": (-1, 0), "up": (0, -1), "down": (0, 1)}


def background_of(name: str, rng: np.random.Generator) -> Image.Image:
    """Return the empty image, SIZE pixels wide and high."""
    return draw_background(name, rng).crop((0, 0, SIZE, SIZE))


def frames_of(
    event: Event, background: Image.Image, hidden: tuple[Actor, ...]
) -> list[Image.Image]:
    """Return the frames of an event; `hidden` actors, those that appear, are invisible at rest."""
    frames = []
    for number in range(FRAMES):
        image = background.copy()
        share = (number - _ACTIVE[0]) / (_ACTIVE[1] - _ACTIVE[0])
        active = 0 <= share <= 1
        if event.other not in hidden:
            _draw(image, event.other, 0, 0, 1, 0)
        # Rises until the middle of the event, then falls.
        height = math.sin(math.pi * share) if active else 0.0
        shown = active if event.kind == "appear" else not (active and event.kind == "vanish")
        if shown:
            _draw(image, event.actor, *_state(event, share if active else 0.0, height))
        frames.append(image)
    return frames


def sound_of(event: Event, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return the sound of an event, (samples,) within -1 and 1: a tone and faint noise."""
    samples = FRAMES * RATE // FPS
    sound = rng.normal(0, _NOISE, samples)
    start, stop = (frame * RATE // FPS for frame in _ACTIVE)
    time = np.arange(stop - start) / RATE
    hertz = _LOWEST * _STEP ** KINDS.index(event.kind) * event.pitch
    tone = np.sin(2 * np.pi * hertz * time) + 0.3 * np.sin(4 * np.pi * hertz * time)
    sound[start:stop] += 0.3 * tone * np.sin(np.pi * np.arange(stop - start) / (stop - start))
    return sound.astype(np.float32)


def _state(event: Event, share: float, height: float) -> tuple[float, float, float, float]:
    """Return the actor's displacement in x and y, its scale, and its rotation in radians."""
    if event.kind in _OFFSETS:
        x, y = _OFFSETS[event.kind]
        return x * _WAY * height, y * _WAY * height, 1, 0
    if event.kind == "collide":
        (x, y), (to_x, to_y) = event.actor.centres[0], event.other.centres[0]
        far = math.dist((x, y), (to_x, to_y))
        way = max(0.0, far - event.actor.radius - event.other.radius) / far * height
        return (to_x - x) * way, (to_y - y) * way, 1, 0
    if event.kind == "grow":
        return 0, 0, 1 + 0.7 * height, 0
    if event.kind == "shrink":
        return 0, 0, 1 - 0.6 * height, 0
    return 0, 0, 1, 2 * math.pi * share if event.kind == "turn" else 0


def _draw(image: Image.Image, actor: Actor, x: float, y: float, size: float, turn: float) -> None:
    radius = round(actor.radius * size)
    mask = silhouette(actor.shape, radius, turn)
    for centre_x, centre_y in actor.centres:
        corner = round(centre_x + x) - radius, round(centre_y + y) - radius
        image.paste(COLOURS[actor.colour], corner, mask)
