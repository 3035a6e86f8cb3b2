"""Foils: captions made wrong by one changed word, two swapped ones or another word order.

As Shi et al. 2018 ("Learning visually-grounded semantics from contrastive adversarial samples"),
who replace nouns, numbers and relations; phrases are also swapped, which keeps the words.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from pipeline.datasets.image_truth import Exchange

PHOTOGRAPHS = (
    Exchange.of(
        "noun",
        "dog/dogs cat/cats horse/horses bird/birds cow/cows man/men woman/women boy/boys "
        "girl/girls bike/bikes car/cars boat/boats ball/balls frisbee/frisbees",
    ),
    Exchange.of("colour", "black white brown red blue green yellow orange pink purple gray"),
    Exchange.of("number", "two three four five six"),
    Exchange.of("place", "snow sand grass water street field pool mountain beach park"),
)
"""Words in captions of photographs; no two of them are true of one thing."""

OPPOSITES: Mapping[str, str] = {
    "beneath": "above", "higher than": "below", "larger": "smaller", "toward": "away from",
    **{
        one: other
        for pair in (
            ("left", "right"), ("above", "below"), ("over", "under"), ("top", "bottom"),
            ("upper", "lower"), ("inside", "outside"), ("in front of", "behind"), ("up", "down"),
            ("into", "out of"), ("bigger", "smaller"), ("towards", "away from"),
            ("with", "without"),
        )
        for one, other in (pair, pair[::-1])
    },
}  # fmt: skip
"""Relation to its opposite."""

_VOWELS = "aeiou"


@dataclass(frozen=True)
class Foil:
    """A caption that was made wrong."""

    kind: str  # such as "colour", "swapped colours", "relation" or "shuffled words"
    text: str


def kinds_of(exchanges: Sequence[Exchange]) -> list[str]:
    """Return the possible kinds of foils, in table order."""
    return [
        *(exchange.name for exchange in exchanges),
        "relation",
        *(f"swapped {exchange.name}s" for exchange in exchanges),
        "shuffled words",
    ]


def foils_of(
    caption: str,
    exchanges: Sequence[Exchange],
    rng: np.random.Generator,
    is_wrong: Callable[[str], bool],
) -> list[Foil]:
    """Return one random foil of each applicable kind."""
    makers: dict[str, Iterator[str]] = {
        **{exchange.name: _replaced(caption, exchange, rng) for exchange in exchanges},
        "relation": _opposed(caption),
        **{f"swapped {e.name}s": _swapped(caption, e, rng) for e in exchanges},
    }
    foils = []
    for kind, texts in makers.items():
        text = next((t for t in texts if t != caption and is_wrong(t)), None)
        if text is not None:
            foils.append(Foil(kind, text))
    # Not a sentence, so `is_wrong` is not asked.
    if (text := _shuffled(caption, rng)) is not None:
        foils.append(Foil("shuffled words", text))
    return foils


def meanings_in(text: str, exchange: Exchange) -> set[int]:
    """Return the positions of the meanings of an exchange for which a text has a phrase."""
    return {meaning for _, _, meaning, _ in _occurrences(text, exchange)}


def _replaced(text: str, exchange: Exchange, rng: np.random.Generator) -> Iterator[str]:
    """Yield the text with one phrase replaced by another, in random order."""
    changes = [
        (start, end, new)
        for start, end, meaning, form in _occurrences(text, exchange)
        for other, forms in enumerate(exchange.meanings)
        if other != meaning
        for new in forms[form]
    ]
    for at in rng.permutation(len(changes)).tolist():
        yield _with(text, [changes[at]])


def _swapped(text: str, exchange: Exchange, rng: np.random.Generator) -> Iterator[str]:
    """Yield the text with two phrases swapped, in random order."""
    occurrences = _occurrences(text, exchange)
    pairs = [
        (one, two)
        for at, one in enumerate(occurrences)
        for two in occurrences[at + 1 :]
        if one[2] != two[2] and one[3] == two[3] and one[1] <= two[0]
    ]
    for at in rng.permutation(len(pairs)).tolist():
        (start, end, *_), (second, last, *_) = pairs[at]
        one, two = text[start:end].lower(), text[second:last].lower()
        yield _with(text, [(start, end, two), (second, last, one)])


def _opposed(text: str) -> Iterator[str]:
    """Yield the text with all its relations reversed."""
    changes = [
        (match.start(), match.end(), OPPOSITES[match[0].lower()])
        for match in _any_of(tuple(OPPOSITES)).finditer(text)
    ]
    if changes:
        yield _with(text, changes)


def _shuffled(text: str, rng: np.random.Generator) -> str | None:
    """Return the words in another order; None if all are the same."""
    end = text[-1] if text[-1] in ".!?" else ""
    words = text.removesuffix(end).split()
    if words:
        words[0] = words[0][0].lower() + words[0][1:]
    if len(set(words)) < 2:
        return None
    order = words
    while order == words:
        order = [words[at] for at in rng.permutation(len(words))]
    joined = " ".join(order)
    return f"{joined[0].upper()}{joined[1:]}{end}"


def _occurrences(text: str, exchange: Exchange) -> list[tuple[int, int, int, int]]:
    """Return (start, end, meaning, form) of each phrase; several for one with several forms."""
    meanings_of = _phrases(exchange)
    return [
        (match.start(), match.end(), meaning, form)
        for match in _any_of(tuple(meanings_of)).finditer(text)
        for meaning, form in meanings_of[match[0].lower()]
    ]


@cache
def _phrases(exchange: Exchange) -> dict[str, list[tuple[int, int]]]:
    meanings_of: dict[str, list[tuple[int, int]]] = {}
    for meaning, forms in enumerate(exchange.meanings):
        for form, phrases in enumerate(forms):
            for phrase in phrases:
                meanings_of.setdefault(phrase, []).append((meaning, form))
    return meanings_of


@cache
def _any_of(phrases: tuple[str, ...]) -> re.Pattern[str]:
    longest = sorted(phrases, key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest))})\b", re.IGNORECASE)


def _with(text: str, changes: Sequence[tuple[int, int, str]]) -> str:
    """Return the text with spans replaced, and its first letter and articles corrected."""
    for start, end, new in sorted(changes, reverse=True):
        before = text[:start]
        # "an orange star" becomes "a red star".
        if re.search(r"\ban? $", before, re.IGNORECASE):
            before = before.rstrip(" n") + ("n " if new[0].lower() in _VOWELS else " ")
        text = before + new + text[end:]
    first = sorted(changes)[0]
    if first[0] == 0:
        text = text[0].upper() + text[1:]
    return text
