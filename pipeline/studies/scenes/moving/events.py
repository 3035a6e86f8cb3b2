"""Model of a moving scene: two groups, and one event of each."""

from dataclasses import dataclass

import numpy as np

from pipeline.studies.scenes.sample import pick
from pipeline.studies.scenes.world import COLOURS, SETTINGS, SHAPES

SIZE = 96  # width and height of a frame in pixels

KINDS = (
    "right", "left", "up", "down", "grow", "shrink", "turn", "vanish", "appear", "collide",
)  # fmt: skip
"""Events of a group; afterwards everything is as before."""

BACKGROUNDS = ("white", "black", "grey", "pink", "light blue")

# A rotation of these is invisible.
_ROUND = {"circle", "ring"}
_RADII = (9, 12)
_COUNT_SHARES = (0.7, 0.3)


@dataclass(frozen=True)
class Actor:
    """One or two equal objects that move together."""

    shape: str  # shape and colour are values of `world`
    colour: str
    radius: int  # radius of each object's enclosing circle in pixels
    centres: tuple[tuple[int, int], ...]  # centres of the objects at rest, (x, y) in pixels


@dataclass(frozen=True)
class Event:
    """An event of one actor."""

    kind: str  # from `KINDS`
    actor: Actor  # moves; `other` rests, and may be hit
    other: Actor
    pitch: float  # pitch of its tone relative to the kind's


@dataclass(frozen=True)
class MovingScene:
    """A scene of two events of different kinds by different actors on a plain background."""

    background: str
    events: tuple[Event, Event]


def sample_moving_scene(rng: np.random.Generator) -> MovingScene:
    """Return a random scene; only colliding groups touch."""
    background = pick(rng, BACKGROUNDS)
    kinds = [KINDS[k] for k in rng.permutation(len(KINDS))[:2]]
    if {*kinds} == {"appear", "collide"}:
        # A collision with a group that has not appeared yet is impossible.
        kinds[kinds.index("appear")] = "vanish"
    usable = [c for c in COLOURS if c not in SETTINGS[background]]
    colours = [usable[k] for k in rng.permutation(len(usable))[:2]]
    shapes: list[str] = []
    for kind in kinds:
        barred = {*shapes, *(_ROUND if kind == "turn" else ())}
        shapes.append(pick(rng, [shape for shape in SHAPES if shape not in barred]))
    sides = rng.permutation(2)
    first, second = (
        _actor(rng, shape, colour, int(side))
        for shape, colour, side in zip(shapes, colours, sides, strict=True)
    )
    pitches = rng.uniform(0.99, 1.01, 2).tolist()
    return MovingScene(
        background,
        (Event(kinds[0], first, second, pitches[0]), Event(kinds[1], second, first, pitches[1])),
    )


def _actor(rng: np.random.Generator, shape: str, colour: str, side: int) -> Actor:
    """Return a group in the left half of the frame (0) or the right one (1)."""
    radius = int(rng.integers(_RADII[0], _RADII[1] + 1))
    x = SIZE // 4 + side * SIZE // 2 + int(rng.integers(-2, 3))
    y = SIZE // 2 + int(rng.integers(-8, 9))
    if pick(rng, (1, 2), _COUNT_SHARES) == 1:
        return Actor(shape, colour, radius, ((x, y),))
    radius = min(radius, 10)
    return Actor(shape, colour, radius, ((x, y - radius - 1), (x, y + radius + 1)))
