"""Parts of a caption: noun phrases for groups of objects, and phrases for the setting."""

from typing import NamedTuple, TypeVar

import numpy as np

from pipeline.studies.scenes.sample import pick
from pipeline.studies.scenes.words import (
    COLOUR_WORDS,
    COUNT_WORDS,
    SETTING_WORDS,
    SHAPE_WORDS,
    SIZE_WORDS,
    TEXTURE_TAILS,
    TEXTURE_WORDS,
)
from pipeline.studies.scenes.world import Group, Scene

T = TypeVar("T")


class Phrase(NamedTuple):
    """A noun phrase with its grammatical number."""

    text: str
    plural: bool  # whether verbs agree in the plural

    def __str__(self) -> str:
        return self.text

    @property
    def be(self) -> str:
        """The form of "to be" that agrees with the phrase."""
        return "are" if self.plural else "is"

    def verb(self, stem: str) -> str:
        """Return the form of a regular verb that agrees with the phrase."""
        return stem if self.plural else stem + "s"


class Speaker:
    """Random choice of words for a scene."""

    def __init__(self, scene: Scene, rng: np.random.Generator) -> None:
        self.scene = scene
        self.named: list[tuple[str, Group]] = []
        self._rng = rng

    def choose(self, *options: T) -> T:
        """Return one of the options."""
        return pick(self._rng, options)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return bool(self._rng.random() < probability)

    def some(self, group: Group, tail: bool = True) -> Phrase:
        """Return e.g. "two small red stars with stripes"; `tail` allows the last two words."""
        count = self.choose(*COUNT_WORDS[group.count])
        texture = TEXTURE_TAILS[group.texture]
        tail = tail and bool(texture) and self.chance(0.25)
        adjectives = self._adjectives(group, texture=not tail)
        if (
            group.count == 1
            and count == "a"
            and (adjectives[:1] or self._name(group))[0] in "aeiou"
        ):
            count = "an"
        words = [count, adjectives, self._name(group), self.choose(*texture) if tail else ""]
        collective = count.startswith(("a pair", "a group"))
        return self._naming(group, words, group.count > 1 and not collective)

    def the(self, group: Group, adjectives: bool = True) -> Phrase:
        """Return e.g. "the two small red stars", or "the two stars" without adjectives."""
        count = COUNT_WORDS[group.count][0] if group.count > 1 and self.chance(0.5) else ""
        words = ["the", count, self._adjectives(group) if adjectives else "", self._name(group)]
        return self._naming(group, words, group.count > 1)

    def looks(self, group: Group) -> str:
        """Return a phrase such as "red", "red and striped" or "small and red"."""
        colour = self.choose(*COLOUR_WORDS[group.colour])
        if group.texture != "plain" and self.chance(0.6):
            return f"{colour} and {self.choose(*TEXTURE_WORDS[group.texture])}"
        if group.size != "medium" and self.chance(0.4):
            return f"{self.choose(*SIZE_WORDS[group.size])} and {colour}"
        return colour

    def setting(self) -> str:
        """Return where the objects are, such as "on the grass"."""
        return self.choose(*SETTING_WORDS[self.scene.setting])[0]

    def backdrop(self) -> str:
        """Return the background, such as "a green lawn"."""
        return self.choose(*SETTING_WORDS[self.scene.setting])[1]

    def sentence(self, text: str, setting: float = 0.0, front: float = 0.3) -> str:
        """Return a sentence; the setting is mentioned, and first, with these probabilities."""
        if self.chance(setting):
            before = self.chance(front)
            text = f"{self.setting()}, {text}" if before else f"{text} {self.setting()}"
        return text[0].upper() + text[1:] + "."

    def _naming(self, group: Group, words: list[str], plural: bool) -> Phrase:
        """Return the phrase of some words, and record the group that it names."""
        phrase = Phrase(" ".join(w for w in words if w), plural)
        self.named.append((phrase.text, group))
        return phrase

    def _adjectives(self, group: Group, texture: bool = True) -> str:
        size = pattern = ""
        if group.size != "medium" and self.chance(0.5):
            size = self.choose(*SIZE_WORDS[group.size])
        if texture and self.chance(0.12 if group.texture == "plain" else 0.75):
            pattern = self.choose(*TEXTURE_WORDS[group.texture])
        colour = self.choose(*COLOUR_WORDS[group.colour])
        swap = group.texture != "plain" and self.chance(0.4)
        words = (size, colour, pattern) if swap else (size, pattern, colour)
        return " ".join(w for w in words if w)

    def _name(self, group: Group) -> str:
        singular, plural = self.choose(*SHAPE_WORDS[group.shape])
        return plural if group.count > 1 else singular
