"""Five captions for a moving scene, in either order of its events."""

from collections.abc import Callable

import numpy as np

from pipeline.studies.scenes.moving.events import Actor, Event, MovingScene
from pipeline.studies.scenes.sample import pick
from pipeline.studies.scenes.words import COLOUR_WORDS, SHAPE_WORDS

# Verb forms for one object and for two.
_VERBS: dict[str, tuple[tuple[str, str], ...]] = {
    "right": (("moves right and back", "move right and back"),
              ("slides to the right and returns", "slide to the right and return")),
    "left": (("moves left and back", "move left and back"),
             ("slides to the left and returns", "slide to the left and return")),
    "up": (("moves up and back", "move up and back"), ("jumps", "jump"), ("hops up", "hop up")),
    "down": (("moves down and back", "move down and back"), ("dips", "dip")),
    "grow": (("grows for a moment", "grow for a moment"), ("swells up", "swell up")),
    "shrink": (("shrinks for a moment", "shrink for a moment"), ("becomes tiny", "become tiny")),
    "turn": (("turns around", "turn around"), ("spins", "spin"), ("rotates", "rotate")),
    "vanish": (("disappears for a moment", "disappear for a moment"),
               ("vanishes and returns", "vanish and return")),
    "appear": (("appears for a moment", "appear for a moment"),
               ("shows up and is gone again", "show up and are gone again")),
    "collide": (("bumps into {}", "bump into {}"), ("hits {}", "hit {}"),
                ("collides with {}", "collide with {}")),
}  # fmt: skip

_ORDERS: tuple[Callable[[str, str], str], ...] = (
    lambda one, two: f"First {one}, then {two}.",
    lambda one, two: f"{_capital(one)}, and then {two}.",
    lambda one, two: f"{_capital(one)} before {two}.",
    lambda one, two: f"{_capital(two)} after {one}.",
    lambda one, two: f"After {one}, {two}.",
)


def captions_of(
    scene: MovingScene, rng: np.random.Generator
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return five captions of a scene, and the same with its events swapped."""
    there, back = [], []
    for order in _ORDERS:
        one, two = (_clause(event, rng) for event in scene.events)
        there.append(order(one, two))
        back.append(order(two, one))
    chosen = rng.permutation(len(_ORDERS))
    return tuple(there[k] for k in chosen), tuple(back[k] for k in chosen)


def _clause(event: Event, rng: np.random.Generator) -> str:
    verb = pick(rng, _VERBS[event.kind])[len(event.actor.centres) - 1]
    return f"{_noun(event.actor, rng)} {verb.format(_noun(event.other, rng))}"


def _noun(actor: Actor, rng: np.random.Generator) -> str:
    name = pick(rng, SHAPE_WORDS[actor.shape])
    colour = pick(rng, COLOUR_WORDS[actor.colour])
    if len(actor.centres) == 1:
        return f"the {colour} {name[0]}"
    return f"the two {colour} {name[1]}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
