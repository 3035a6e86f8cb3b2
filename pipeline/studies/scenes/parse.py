"""Parser of captions, the inverse of the grammar, for captions from any source.

Ungrammatical captions, such as "two star" or truncated ones, are not parsed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.studies.scenes.words import (
    ABOVE,
    BELOW,
    BOTTOM,
    COLOUR_WORDS,
    COUNT_WORDS,
    LEFT,
    LEFT_OF,
    NUMBERS,
    PLACES,
    RIGHT,
    RIGHT_OF,
    SETTING_WORDS,
    SHAPE_WORDS,
    SIZE_WORDS,
    TEXTURE_TAILS,
    TEXTURE_WORDS,
    TOP,
)


@dataclass(frozen=True)
class Named:
    """A group of objects as named in a caption; None and "" for what is not mentioned."""

    shape: str  # all texts are values of `world`, "" if not mentioned
    counts: frozenset[int]
    """Possible numbers of objects: {2} for "two stars", {2, 3, 4} for "the stars"."""
    colour: str = ""
    texture: str = ""
    size: str = ""


@dataclass(frozen=True)
class Relation:
    """A statement about named groups."""

    kind: str
    """"left of", "right of", "above", "below", "beside", "inside", "between" (the other two),
    "bigger", "smaller", "only" (no other object), "total N" (objects in all), or "at " and a place:
    "left", "right", "top", "bottom" or a key of `PLACES`."""
    groups: tuple[int, ...]  # positions in `Parsed.named`


@dataclass(frozen=True)
class Parsed:
    """A parsed caption."""

    named: tuple[Named, ...]  # groups in the order of their naming
    relations: tuple[Relation, ...] = ()
    setting: str = ""  # the background, or ""


def parse(caption: str) -> Parsed | None:
    """Parse a caption; return None if it is not in the grammar."""
    # Language models may omit capitals and punctuation.
    text = " ".join(re.findall(r"[a-z]+", caption.lower()))
    for rest, setting in _settings(text):
        skeleton, named = _skeleton(rest)
        for pattern, relations_of in _FORMS:
            if match := pattern.fullmatch(skeleton):
                described = _with_looks(named, match.groupdict())
                if described is not None:
                    return Parsed(described, tuple(relations_of(match)), setting)
    return None


def _skeleton(text: str) -> tuple[str, list[Named]]:
    """Return a sentence with "@" for each noun phrase, and the groups that the phrases name."""
    named: list[Named] = []

    def note(match: re.Match[str]) -> str:
        shape, of_noun = _NOUNS[match["noun"]]
        counts = _DETERMINERS[match["determiner"]] & of_noun
        adjectives = _adjectives(f"{match['adjectives']}{match['tail'] or ''}")
        if not counts or adjectives is None:  # the words of the phrase disagree
            return match[0]
        named.append(replace(Named(shape, counts), **adjectives))
        return "@"

    return _NOUN_PHRASE.sub(note, text), named


def _settings(text: str) -> Iterable[tuple[str, str]]:
    """Yield a caption without its setting, which is first, last or not mentioned."""
    for setting, words in SETTING_WORDS.items():
        for phrase, backdrop in words:
            if text.endswith(f" {phrase}"):
                yield text.removesuffix(f" {phrase}"), setting
            if text.startswith(f"{phrase} "):
                yield text.removeprefix(f"{phrase} "), setting
            if text.startswith(f"{backdrop} with "):
                yield f"backdrop{text.removeprefix(backdrop)}", setting
    yield text, ""


def _adjectives(text: str) -> dict[str, Any] | None:
    """Return colour, texture and size of adjectives; None if one occurs twice."""
    values: dict[str, str] = {}
    for match in _ADJECTIVE.finditer(text):
        kind, value = _ADJECTIVES[match[0]]
        if kind in values:
            return None
        values[kind] = value
    return values


def _with_looks(named: list[Named], looks_of: Mapping[str, str | None]) -> tuple[Named, ...] | None:
    """Return the groups with the attributes of "is red and striped" for the first and second."""
    described = list(named)
    for at, name in enumerate(("looks", "looks_too")):
        if looks := looks_of.get(name):
            adjectives = _adjectives(looks)
            if adjectives is None:
                return None
            described[at] = replace(described[at], **adjectives)
    return tuple(described)


def _any(phrases: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(phrases, key=len, reverse=True))})"


_ADJECTIVES = {
    word: (kind, value)
    for kind, lists in (
        ("colour", COLOUR_WORDS),
        ("texture", TEXTURE_WORDS),
        ("texture", TEXTURE_TAILS),
        ("size", SIZE_WORDS),
    )
    for value, words in lists.items()
    for word in words
}
_TAILS = [tail for tails in TEXTURE_TAILS.values() for tail in tails]
_ONE, _MANY = frozenset({1}), frozenset({2, 3, 4})
_NOUNS = {
    name: (shape, (_ONE if name == one else frozenset()) | (_MANY if name == many else frozenset()))
    for shape, names in SHAPE_WORDS.items()
    for one, many in names
    for name in (one, many)
}
_DETERMINERS = {
    "an": _ONE,
    "the": _ONE | _MANY,
    **{f"the {words[0]}": frozenset({n}) for n, words in COUNT_WORDS.items() if n in _MANY},
    **{word: frozenset({n}) for n, words in COUNT_WORDS.items() for word in words},
}
_ADJECTIVE = re.compile(rf"\b{_any(_ADJECTIVES)}\b")
_NOUN_PHRASE = re.compile(
    rf"\b(?P<determiner>{_any(_DETERMINERS)})"
    rf"(?P<adjectives>(?: {_any(w for w in _ADJECTIVES if w not in _TAILS)})*)"
    rf" (?P<noun>{_any(_NOUNS)})\b(?P<tail> {_any(_TAILS)}\b)?"
)

_RELATIONS = {
    **dict.fromkeys(LEFT_OF, "left of"),
    **dict.fromkeys(RIGHT_OF, "right of"),
    **dict.fromkeys(ABOVE, "above"),
    **dict.fromkeys(BELOW, "below"),
    **dict.fromkeys(("inside", "in", "within"), "inside"),
    **dict.fromkeys(("next to", "beside"), "beside"),
}
_SIDES = {
    **dict.fromkeys(LEFT, "at left"),
    **dict.fromkeys(RIGHT, "at right"),
    **dict.fromkeys(TOP, "at top"),
    **dict.fromkeys(BOTTOM, "at bottom"),
}
_AT = {**_SIDES, **{p: f"at {position}" for position, phrases in PLACES.items() for p in phrases}}
_COMPARED = {"bigger": "bigger", "larger": "bigger", "smaller": "smaller"}

_Relations = Callable[[re.Match[str]], Iterable[Relation]]
_BE, _THINGS = "(?:is|are)", "(?:objects|shapes|things)"
_SEEN = f"(?:{_BE} placed|{_BE}|appears?|can be seen)"
_LISTED = "(?:@|@ and @|@ @ and @)"
_LOOK = _any(w for w in _ADJECTIVES if w not in _TAILS)
_LOOKS = f"{_LOOK}(?: and {_LOOK})?"


def _along(match: re.Match[str]) -> list[Relation]:
    """Return the relations of an order such as "from left to right"."""
    kinds = {"left": "left of", "right": "right of", "top": "above", "bottom": "below"}
    kind = kinds[match["way"].split()[0]]
    return [Relation(kind, (k, k + 1)) for k in range(match[0].count("@") - 1)]


def _total(match: re.Match[str]) -> list[Relation]:
    return [Relation(f"total {NUMBERS.index(match['total']) + 2}", ())]


def _fixed(*relations: Relation) -> _Relations:
    return lambda match: relations


_FORMS: list[tuple[re.Pattern[str], _Relations]] = [
    (re.compile(form), relations)
    for form, relations in (
        (
            rf"(?:there {_BE} @|@ {_SEEN}|@) (?P<kind>{_any(_RELATIONS)}) @",
            lambda f: [Relation(_RELATIONS[f["kind"]], (0, 1))],
        ),
        (
            rf"(?P<one>{_any(_SIDES)}) there {_BE} @ and (?P<two>{_any(_SIDES)}) @"
            rf"|(?:there {_BE} )?@ (?P<first>{_any(_SIDES)}) and @ (?P<second>{_any(_SIDES)})",
            lambda f: [
                Relation(_SIDES[f["one"] or f["first"]], (0,)),
                Relation(_SIDES[f["two"] or f["second"]], (1,)),
            ],
        ),
        (
            r"from (?P<way>left to right|right to left|top to bottom|bottom to top) "
            rf"there are {_LISTED}",
            _along,
        ),
        (
            rf"(?:there {_BE} @|@ {_SEEN}|@|backdrop with @) (?P<place>{_any(_AT)})",
            lambda f: [Relation(_AT[f["place"]], (0,))],
        ),
        (
            rf"@ {_BE} (?P<kind>{_any(_COMPARED)}) than @",
            lambda f: [Relation(_COMPARED[f["kind"]], (0, 1))],
        ),
        (rf"(?:there are )?(?P<total>{_any(NUMBERS)}) {_THINGS} (?:in all )?{_LISTED}", _total),
        (
            r"@ (?:surrounds?|contains?|encloses?) @|@ with @ (?:inside it|inside|in it)",
            _fixed(Relation("inside", (1, 0))),
        ),
        (
            rf"@ {_BE} (?:surrounded by|contained in|enclosed by) @",
            _fixed(Relation("inside", (0, 1))),
        ),
        (
            rf"(?:there {_BE} @|@ {_BE}|@) between @ and @|@ {_BE} flanked by @ and @",
            _fixed(Relation("between", (0, 1, 2))),
        ),
        (r"@ and @ (?:are on either side of|flank) @", _fixed(Relation("between", (2, 0, 1)))),
        (
            rf"@ {_BE} below @ and above @",
            _fixed(Relation("below", (0, 1)), Relation("above", (0, 2))),
        ),
        (
            rf"@ {_BE} above @ and below @",
            _fixed(Relation("above", (0, 1)), Relation("below", (0, 2))),
        ),
        (
            rf"@ {_BE} above @ and @ {_BE} below",
            _fixed(Relation("above", (0, 1)), Relation("below", (2, 1))),
        ),
        (r"(?:only|nothing but) @", _fixed(Relation("only", (0,)))),
        (rf"@ {_BE} (?P<looks>{_LOOKS})(?: and @ {_BE} (?P<looks_too>{_LOOKS}))?", _fixed()),
        (
            rf"(?:there {_BE} |a picture of )?@|@ (?:and|together with) @|backdrop with {_LISTED}",
            _fixed(),
        ),
    )
]
"""The sentences of the grammar, with "@" for a noun phrase, and the relations of each."""
