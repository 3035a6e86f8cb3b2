"""Five captions per scene: all true, and different in words, order, side, voice or detail."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.studies.scenes.noun_phrases import Phrase, Speaker
from pipeline.studies.scenes.words import (
    ABOVE,
    BELOW,
    BOTTOM,
    LEFT,
    LEFT_OF,
    NUMBERS,
    PLACES,
    RIGHT,
    RIGHT_OF,
    TOP,
)
from pipeline.studies.scenes.world import Arrangement, Group, Scene

CAPTIONS = 5


class Caption(NamedTuple):
    """A caption with its noun phrases."""

    text: str
    phrases: tuple[tuple[str, Group], ...]
    """Noun phrases in order, each with the group that it names."""


def describe(scene: Scene, rng: np.random.Generator) -> tuple[str, ...]:
    """Return five different captions of a scene, in random order."""
    return tuple(caption.text for caption in captions_of(scene, rng))


def captions_of(scene: Scene, rng: np.random.Generator) -> tuple[Caption, ...]:
    """Return the captions of `describe` with their noun phrases."""
    speaker = Speaker(scene, rng)
    captions: list[Caption] = []
    for tell in _TELLERS[scene.arrangement]:
        caption = _told(speaker, tell)
        while caption.text in [former.text for former in captions]:
            caption = _told(speaker, tell)
        captions.append(caption)
    return tuple(captions[i] for i in rng.permutation(CAPTIONS))


def _told(speaker: Speaker, tell: Callable[[Speaker], str]) -> Caption:
    speaker.named.clear()
    text = tell(speaker)
    spans: dict[tuple[int, int], tuple[str, Group]] = {}
    for phrase, group in speaker.named:
        # A sentence starts with a capital letter, unlike its phrase.
        if match := re.search(rf"\b{re.escape(phrase)}\b", text.lower()):
            spans[match.span()] = phrase, group
    # A phrase that was discarded may be the beginning of one that was used.
    outermost = [
        s for s in sorted(spans) if not any(t[0] <= s[0] and s[1] <= t[1] for t in spans if t != s)
    ]
    return Caption(text, tuple(spans[span] for span in outermost))


def _relation(s: Speaker, x: Group, relations: Sequence[str], y: Group) -> str:
    """Return a caption such as "There are two red stars to the left of a fish."."""
    subject, thing, relation = s.some(x), s.some(y), s.choose(*relations)
    form = s.choose("is", "there is", "fragment", "verb")
    if form == "is":
        return s.sentence(f"{subject} {subject.be} {relation} {thing}", setting=0.35)
    if form == "there is":
        return s.sentence(f"there {subject.be} {subject} {relation} {thing}", setting=0.35)
    if form == "fragment":
        return s.sentence(f"{subject} {relation} {thing}", setting=0.5, front=0.0)
    verb = s.choose(subject.verb("appear"), f"{subject.be} placed", "can be seen")
    return s.sentence(f"{subject} {verb} {relation} {thing}", setting=0.35)


def _across(s: Speaker) -> bool:
    return s.scene.arrangement is Arrangement.SIDE_BY_SIDE or s.scene.position == "row"


def _forward(s: Speaker) -> str:
    first, second = s.scene.groups
    return _relation(s, first, LEFT_OF if _across(s) else ABOVE, second)


def _backward(s: Speaker) -> str:
    first, second = s.scene.groups
    return _relation(s, second, RIGHT_OF if _across(s) else BELOW, first)


def _sides(s: Speaker) -> str:
    """Return a caption such as "On the right there is a fish, and on the left a star."."""
    sides = (LEFT, RIGHT) if _across(s) else (TOP, BOTTOM)
    told = [(s.some(g), s.choose(*side)) for g, side in zip(s.scene.groups, sides, strict=True)]
    (x, at_x), (y, at_y) = told if s.chance(0.5) else told[::-1]
    form = s.choose("place first", "place last", "there is", "order")
    if form == "place first":
        return s.sentence(f"{at_x} there {x.be} {x}, and {at_y} {y}")
    if form == "place last":
        return s.sentence(f"{x} {at_x} and {y} {at_y}", setting=0.3, front=0.0)
    if form == "there is":
        return s.sentence(f"there {x.be} {x} {at_x} and {y} {at_y}", setting=0.3)
    return _order(s)


def _order(s: Speaker) -> str:
    """Return a caption such as "From left to right there are two stars, a fish and a ring."."""
    ends = ("left", "right") if _across(s) else ("top", "bottom")
    groups = s.scene.groups
    if s.chance(0.35):
        ends, groups = ends[::-1], groups[::-1]
    row = _listed([s.some(g) for g in groups])
    return s.sentence(f"from {ends[0]} to {ends[1]} there are {row}", setting=0.25, front=0.0)


def _together(s: Speaker) -> str:
    """Return the groups without their order, or one of them with its side."""
    groups = s.scene.groups
    if s.chance(0.3):
        sides = (LEFT, RIGHT) if _across(s) else (TOP, BOTTOM)
        k = s.choose(0, 1)
        return s.sentence(f"{s.some(groups[k])} {s.choose(*sides[k])}", setting=0.8, front=0.0)
    x, y = (s.some(g) for g in (groups if s.chance(0.5) else groups[::-1]))
    joined = s.choose(f"{x} and {y}", f"{x} together with {y}")
    if _across(s):
        joined = s.choose(joined, f"{x} next to {y}", f"{x} beside {y}")
    return s.sentence(joined, setting=0.9, front=0.0)


def _facts(s: Speaker) -> str:
    """Return a caption that compares sizes, lists colours or counts the objects."""
    x, y = s.scene.groups[:2] if s.chance(0.5) else s.scene.groups[1::-1]
    form = s.choose("compare", "looks", "total")
    if form == "compare" and x.size != y.size and "medium" not in (x.size, y.size):
        words = ("bigger", "larger") if x.size == "large" else ("smaller",)
        subject = s.the(x)
        return s.sentence(
            f"{subject} {subject.be} {s.choose(*words)} than {s.the(y)}", setting=0.15, front=1.0
        )
    if form == "total":
        total = NUMBERS[sum(g.count for g in s.scene.groups) - 2]
        things = s.choose("objects", "shapes", "things")
        row = _listed([s.some(g) for g in s.scene.groups])
        if s.chance(0.5):
            return s.sentence(f"there are {total} {things} in all: {row}")
        return s.sentence(f"{total} {things}, {row}", setting=0.5, front=0.0)
    return s.sentence(f"{_looks(s, x)} and {_looks(s, y)}", setting=0.15, front=1.0)


def _looks(s: Speaker, group: Group) -> str:
    subject = s.the(group, adjectives=False)
    return f"{subject} {subject.be} {s.looks(group)}"


def _backdrop(s: Speaker) -> str:
    """Return a caption such as "A brick wall with a red star and two fish."."""
    row = _listed([s.some(g, tail=False) for g in s.scene.groups])
    if s.scene.arrangement is Arrangement.ALONE and s.chance(0.5):
        row = f"{row} {s.choose(*PLACES[s.scene.position])}"
    return s.sentence(f"{s.backdrop()} with {row}")


def _content(s: Speaker) -> str:
    outer, inner = s.scene.groups
    return _relation(s, inner, ("inside", "in", "within"), outer)


def _container(s: Speaker) -> str:
    """Return a caption such as "A large ring surrounds two stars.", or the passive."""
    outer, inner = (s.some(g) for g in s.scene.groups)
    verb, participle = s.choose(
        ("surround", "surrounded by"), ("contain", "contained in"), ("enclose", "enclosed by")
    )
    form = s.choose("active", "passive", "with")
    if form == "active":
        return s.sentence(f"{outer} {outer.verb(verb)} {inner}", setting=0.25)
    if form == "passive":
        return s.sentence(f"{inner} {inner.be} {participle} {outer}", setting=0.25)
    return s.sentence(f"{outer} with {inner} {s.choose('inside', 'inside it', 'in it')}")


def _between(s: Speaker) -> str:
    first, middle, last = (s.scene.groups) if s.chance(0.5) else s.scene.groups[::-1]
    x, y, z = s.some(middle), s.some(first), s.some(last)
    form = s.choose(f"{x} {x.be} between", f"there {x.be} {x} between", f"{x} between")
    return s.sentence(f"{form} {y} and {z}", setting=0.35)


def _flanks(s: Speaker) -> str:
    """Return a caption with the outer two on either side of, or above and below, the middle one."""
    x, y, z = (s.some(g) for g in s.scene.groups)
    if _across(s):
        form = s.choose(
            f"{x} and {z} are on either side of {y}",
            f"{x} and {z} flank {y}",
            f"{y} {y.be} flanked by {x} and {z}",
        )
    else:
        form = s.choose(
            f"{y} {y.be} below {x} and above {z}",
            f"{y} {y.be} above {z} and below {x}",
            f"{x} {x.be} above {y}, and {z} {z.be} below",
        )
    return s.sentence(form, setting=0.25)


def _two_of_three(s: Speaker) -> str:
    i, j = s.choose((0, 1), (0, 2), (1, 2))
    x, y = s.scene.groups[i], s.scene.groups[j]
    if s.chance(0.5):
        return _relation(s, x, LEFT_OF if _across(s) else ABOVE, y)
    return _relation(s, y, RIGHT_OF if _across(s) else BELOW, x)


def _placed(s: Speaker) -> str:
    x = s.some(s.scene.groups[0])
    at = s.choose(*PLACES[s.scene.position])
    form = s.choose(f"{x} {x.be} {at}", f"{x} can be seen {at}", f"{x} {x.verb('appear')} {at}")
    return s.sentence(form, setting=0.4)


def _there_is(s: Speaker) -> str:
    x = s.some(s.scene.groups[0])
    return s.sentence(f"there {x.be} {x} {s.choose(*PLACES[s.scene.position])}", setting=0.5)


def _in_setting(s: Speaker) -> str:
    """Return a caption of the first group, the only one or the container, with the setting."""
    x = s.some(s.scene.groups[0])
    return s.sentence(s.choose(f"{x}", f"a picture of {x}", f"there {x.be} {x}"), 1.0, front=0.0)


def _alone(s: Speaker) -> str:
    (group,) = s.scene.groups
    if s.chance(0.5):
        return s.sentence(_looks(s, group), setting=0.6, front=1.0)
    return s.sentence(s.choose(f"only {s.some(group)}", f"nothing but {s.some(group)}"), 0.5)


_TELLERS: dict[Arrangement, tuple[Callable[[Speaker], str], ...]] = {
    Arrangement.ALONE: (_placed, _there_is, _in_setting, _backdrop, _alone),
    Arrangement.SIDE_BY_SIDE: (_forward, _backward, _sides, _together, _facts),
    Arrangement.STACKED: (_forward, _backward, _sides, _together, _facts),
    Arrangement.INSIDE: (_content, _container, _in_setting, _facts, _backdrop),
    Arrangement.BETWEEN: (_between, _flanks, _order, _two_of_three, _backdrop),
}


def _listed(phrases: Sequence[Phrase]) -> str:
    texts = [str(p) for p in phrases]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)
