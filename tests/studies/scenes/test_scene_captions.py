"""Captions of scenes, read by a reader with a dictionary and a grammar of its own.

It turns each caption into noun phrases and a skeleton ("G is to the left of G"), and checks both
against the objects of the scene and where they lie.
"""

import math
import re
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
import pytest

from pipeline.studies.scenes.grammar import describe
from pipeline.studies.scenes.sample import sample_scene
from pipeline.studies.scenes.words import SETTING_WORDS
from pipeline.studies.scenes.world import COLOURS, SIZE, Arrangement, Group, Scene

NOUNS = {
    "circle": "circle circles disc discs ball balls",
    "square": "square squares box boxes",
    "triangle": "triangle triangles",
    "star": "star stars",
    "ring": "ring rings hoop hoops",
    "cross": "cross crosses plus_sign plus_signs",
    "heart": "heart hearts",
    "diamond": "diamond diamonds",
    "hexagon": "hexagon hexagons",
    "crescent": "crescent crescents moon moons",
    "flower": "flower flowers blossom blossoms",
    "fish": "fish",
}
SHAPE_OF = {word.replace("_", " "): shape for shape, ws in NOUNS.items() for word in ws.split()}
TRAITS = {
    **{c: ("colour", c) for c in COLOURS},
    "scarlet": ("colour", "red"),
    "violet": ("colour", "purple"),
    "plain": ("texture", "plain"),
    "solid": ("texture", "plain"),
    "striped": ("texture", "striped"),
    "with stripes": ("texture", "striped"),
    "dotted": ("texture", "dotted"),
    "spotted": ("texture", "dotted"),
    "with dots": ("texture", "dotted"),
    "with spots": ("texture", "dotted"),
    "checked": ("texture", "checked"),
    "chequered": ("texture", "checked"),
    "with a checked pattern": ("texture", "checked"),
    "small": ("size", "small"),
    "little": ("size", "small"),
    "tiny": ("size", "small"),
    "large": ("size", "large"),
    "big": ("size", "large"),
}
NUMBERS = {"a": 1, "an": 1, "one": 1, "a single": 1, "a pair of": 2, "a couple of": 2, "two": 2}
NUMBERS |= {"a group of three": 3, "a few": 3, "three": 3}
NUMBERS |= {"a group of four": 4, "several": 4, "four": 4, "the two": 2, "the three": 3}
NUMBERS |= {"the four": 4}
TOTALS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight"]


ROOM = {"circle": 1.0, "square": 0.707, "ring": 0.58, "diamond": 0.584, "hexagon": 0.866}
"""Radius of the largest circle in each container, as a share of the container's own."""


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


ADJECTIVE = _any(t for t in TRAITS if not t.startswith("with"))
TAIL = _any(t for t in TRAITS if t.startswith("with"))
NOUN_PHRASE = re.compile(
    rf"\b({_any([*NUMBERS, 'the'])}) ((?:(?:{ADJECTIVE}) )*)({_any(SHAPE_OF)})\b(?: ({TAIL}))?"
)


def box(g: Group) -> tuple[int, int, int, int]:
    xs, ys = [x for x, _ in g.centres], [y for _, y in g.centres]
    r = g.radius
    return min(xs) - r, min(ys) - r, max(xs) + r, max(ys) + r


def before(a: Group, b: Group) -> bool:
    return box(a)[2] < box(b)[0]


def over(a: Group, b: Group) -> bool:
    return box(a)[3] < box(b)[1]


def within(a: Group, b: Group) -> bool:
    (centre,) = b.centres
    room = ROOM[b.shape] * b.radius
    return all(math.dist(centre, c) + a.radius < room for c in a.centres)


RELATIONS: dict[str, Callable[[Group, Group], bool]] = {
    **dict.fromkeys(("to the left of", "left of", "on the left of"), before),
    **dict.fromkeys(("to the right of", "right of", "on the right of"), lambda a, b: before(b, a)),
    **dict.fromkeys(("above", "over", "higher than"), over),
    **dict.fromkeys(("below", "under", "beneath"), lambda a, b: over(b, a)),
    **dict.fromkeys(("inside", "in", "within"), within),
}


def related(gs: list[Group], relation: str) -> bool:
    return RELATIONS[relation](gs[0], gs[1])


def in_order(gs: Iterable[Group], start: str) -> bool:
    relation = {"left": "left of", "right": "right of", "top": "above", "bottom": "below"}[start]
    return all(RELATIONS[relation](a, b) for a, b in pairwise(gs))


def middle_first(gs: list[Group], *starts: str) -> bool:
    """Return whether the first group lies between the second and the third."""
    return any(in_order((gs[1], gs[0], gs[2]), start) for start in starts)


def at_place(g: Group, at: str) -> bool:
    left, top, right, bottom = box(g)
    half = SIZE / 2
    if at in ("in a row", "side by side", "next to each other"):
        return g.count > 1 and len({y for _, y in g.centres}) == 1
    if at in ("in a column", "one above the other", "in a vertical line"):
        return g.count > 1 and len({x for x, _ in g.centres}) == 1
    if at in ("spread out", "scattered around"):
        return g.count > 1
    if "middle" in at or "centre" in at:
        return all(SIZE / 3 < v < 2 * SIZE / 3 for v in g.centres[0])
    wanted = {
        "left": right <= half,
        "right": left >= half,
        **dict.fromkeys(("top", "upper"), bottom <= half),
        **dict.fromkeys(("bottom", "lower"), top >= half),
    }
    named = [wanted[w] for w in at.split() if w in wanted]
    return bool(named) and all(named)


def looks(g: Group, text: str) -> bool:
    traits = [TRAITS[t] for t in re.findall(rf"{TAIL}|{ADJECTIVE}", text)]
    return all(getattr(g, kind) == value for kind, value in traits)


def counted(gs: list[Group], total: str) -> bool:
    return TOTALS.index(total) == sum(g.count for g in gs)


BE = "(?:is|are)"
VERB = f"(?:{BE}|appears?|{BE} placed|can be seen)"
AT = r"((?:in|at|on|side|next|one|spread|scattered)\b[a-z ]*?)"
LOOKS = rf"((?:{ADJECTIVE})(?: and (?:{ADJECTIVE}))?)"
THERE = f"(?:there {BE} )?"
READINGS: tuple[tuple[str, Callable[..., bool]], ...] = (
    (rf"{THERE}G (?:{VERB} )?({_any(RELATIONS)}) G", related),
    (r"G (?:surrounds?|contains?|encloses?) G", lambda gs: within(gs[1], gs[0])),
    (r"G with G (?:inside|inside it|in it)", lambda gs: within(gs[1], gs[0])),
    (rf"G {BE} (?:surrounded by|contained in|enclosed by) G", lambda gs: within(gs[0], gs[1])),
    (
        rf"{THERE}G (?:{BE} )?between G and G",
        lambda gs: middle_first(gs, "left", "right", "top", "bottom"),
    ),
    (
        r"G and G (?:are on either side of|flank) G",
        lambda gs: middle_first([gs[2], gs[0], gs[1]], "left", "right"),
    ),
    (rf"G {BE} flanked by G and G", lambda gs: middle_first(gs, "left", "right")),
    (rf"G {BE} below G and above G", lambda gs: middle_first(gs, "top")),
    (rf"G {BE} above G and below G", lambda gs: middle_first(gs, "bottom")),
    (rf"G {BE} above G, and G {BE} below", lambda gs: in_order(gs, "top")),
    (r"from (left|right|top|bottom) to [a-z]+ there are G(?:, G)? and G", in_order),
    (
        rf"{AT} there {BE} G, and {AT} G",
        lambda gs, one, two: at_place(gs[0], one) and at_place(gs[1], two),
    ),
    (
        rf"{THERE}G {AT} and G {AT}",
        lambda gs, one, two: at_place(gs[0], one) and at_place(gs[1], two),
    ),
    (rf"(?:SETTING with )?{THERE}G (?:{VERB} )?{AT}", lambda gs, at: at_place(gs[0], at)),
    (rf"G {BE} {LOOKS}", lambda gs, text: looks(gs[0], text)),
    (
        rf"G {BE} {LOOKS} and G {BE} {LOOKS}",
        lambda gs, one, two: looks(gs[0], one) and looks(gs[1], two),
    ),
    (rf"G {BE} (?:bigger|larger) than G", lambda gs: gs[0].radius > gs[1].radius),
    (rf"G {BE} smaller than G", lambda gs: gs[0].radius < gs[1].radius),
    (rf"({_any(TOTALS)}) (?:objects|shapes|things), G(?:, G)? and G", counted),
    (rf"there are ({_any(TOTALS)}) (?:objects|shapes|things) in all: G(?:, G)? and G", counted),
    (
        r"G (?:next to|beside) G",
        lambda gs: in_order(gs[:2], "left") or in_order(gs[:2], "right"),
    ),
    (r"(?:only|nothing but) G", lambda gs: len(gs) == 1),
    (rf"(?:SETTING with |a picture of |{THERE})G", lambda gs: True),
    (r"(?:SETTING with )?G(?:, G)? (?:and|together with) G", lambda gs: True),
)


def check_caption(caption: str, scene: Scene) -> str:
    """Assert that a caption is good English of its kind and true; return its skeleton."""
    assert re.fullmatch(r"[A-Z][a-z ,:]+\.", caption), caption
    text = caption[:-1].lower()
    for where, backdrop in SETTING_WORDS[scene.setting]:
        text = re.sub(rf"^{backdrop} with ", "SETTING with ", text)
        text = re.sub(rf"^{where}, | {where}$", "", text)
    groups: list[Group] = []

    def read(match: re.Match[str]) -> str:
        number, adjectives, noun, tail = match.groups()
        (group,) = [g for g in scene.groups if g.shape == SHAPE_OF[noun]]
        plural = noun.endswith("s") and noun != "cross"
        assert noun == "fish" or plural == (group.count > 1), caption
        assert NUMBERS.get(number, group.count) == group.count, caption
        if number in ("a", "an"):
            assert (number == "an") == ((adjectives or noun)[0] in "aeiou"), caption
        assert looks(group, adjectives + (tail or "")), caption
        groups.append(group)
        return "G"

    skeleton = NOUN_PHRASE.sub(read, text)
    found = [(m, true) for p, true in READINGS if (m := re.fullmatch(p, skeleton))]
    assert len(found) == 1, f"{len(found)} readings of {skeleton!r}: {caption}"
    match, true = found[0]
    if match[0].startswith(("only", "nothing")) or "in all" in match[0]:
        assert len(groups) == len(scene.groups), caption
    assert true(groups, *match.groups()), (caption, scene)
    return skeleton


def scene_of(seed: int, index: int) -> tuple[Scene, tuple[str, ...]]:
    rng = np.random.Generator(np.random.PCG64((seed, index)))
    scene = sample_scene(rng)
    return scene, describe(scene, rng)


def test_captions_are_true_distinct_and_varied() -> None:
    skeletons: dict[Arrangement, set[str]] = {arrangement: set() for arrangement in Arrangement}
    for index in range(600):
        scene, captions = scene_of(7, index)
        assert len(set(captions)) == 5
        for caption in captions:
            skeletons[scene.arrangement].add(check_caption(caption, scene))
    assert all(len(found) >= 12 for found in skeletons.values()), skeletons


def test_the_reader_finds_false_captions() -> None:
    scene, _ = next(
        found
        for found in (scene_of(7, i) for i in range(100))
        if found[0].arrangement is Arrangement.SIDE_BY_SIDE and found[0].groups[0].count == 1
    )
    a, b = (f"the {g.colour} {NOUNS[g.shape].split()[g.count > 1 and -1]}" for g in scene.groups)
    a, b = a.replace("_", " "), b.replace("_", " ")
    check_caption(f"{a} is left of {b}.".capitalize(), scene)
    wrong_colour = next(c for c in COLOURS if c != scene.groups[0].colour)
    for false in (
        f"{a} is right of {b}.",
        f"{a} is above {b}.",
        f"{a.replace(scene.groups[0].colour, wrong_colour)} is left of {b}.",
        f"{a.replace('the', 'two')} is left of {b}.",
    ):
        with pytest.raises(AssertionError):
            check_caption(false.capitalize(), scene)
