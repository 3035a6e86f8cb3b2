"""Foils of captions: one word of another meaning in the same form, exchanges, and no others."""

import re

import numpy as np
import pytest

from pipeline.studies.probes.foils import OPPOSITES, PHOTOGRAPHS, foils_of, kinds_of, meanings_in
from pipeline.studies.scenes.draw_scenes import scene_of
from pipeline.studies.scenes.drawn_truth import EXCHANGES, DrawnTruth
from pipeline.studies.scenes.grammar import describe
from pipeline.studies.scenes.world import SHAPES

NOUN, COLOUR, NUMBER, PLACE = PHOTOGRAPHS


def foils(caption: str, seed: int = 0) -> dict[str, str]:
    rng = np.random.default_rng(seed)
    return {f.kind: f.text for f in foils_of(caption, PHOTOGRAPHS, rng, lambda text: True)}


def words(text: str) -> list[str]:
    """Return the words without "a" and "an", which follow the next word."""
    return [word for word in re.findall("[a-z]+", text.lower()) if word not in ("a", "an")]


def test_a_foil_of_each_kind() -> None:
    found = foils("Two brown dogs and a black cat with three balls run left on the snow.")
    assert list(found) == [kind for kind in kinds_of(PHOTOGRAPHS) if kind != "swapped places"]
    assert found["relation"] == (
        "Two brown dogs and a black cat without three balls run right on the snow."
    )
    assert found["swapped colours"] == (
        "Two black dogs and a brown cat with three balls run left on the snow."
    )
    # A plural changes its place with a plural.
    assert found["swapped nouns"] == (
        "Two brown balls and a black cat with three dogs run left on the snow."
    )
    assert found["swapped numbers"] == (
        "Three brown dogs and a black cat with two balls run left on the snow."
    )
    text = "two brown dogs and a black cat with three balls run left on the snow"
    assert sorted(words(found["shuffled words"])) == sorted(words(text))


@pytest.mark.parametrize("seed", range(20))
def test_a_replaced_noun_keeps_number_and_article(seed: int) -> None:
    text = foils("An orange cat sees two dogs.", seed)
    (new,) = meanings_in(text["colour"], COLOUR)
    colour = COLOUR.meanings[new][0][0]
    assert text["colour"] == f"A{'n' * (colour[0] in 'aeiou')} {colour} cat sees two dogs."
    one, many = text["noun"].removesuffix(".").split()[2::3][:2]
    assert (one == "cat") != (many == "dogs")
    assert one in {forms[0][0] for forms in NOUN.meanings}
    assert many in {forms[1][0] for forms in NOUN.meanings}


def test_opposites_contradict_and_return() -> None:
    assert all(OPPOSITES[other] != other for other in OPPOSITES.values())
    for word in ("left", "above", "over", "inside", "in front of", "bigger", "with"):
        assert OPPOSITES[OPPOSITES[word]] == word


def test_captions_without_a_changeable_word_have_shuffled_words_at_most() -> None:
    assert list(foils("Somebody sleeps.")) == ["shuffled words"]
    assert foils("Sleep sleep.") == {} == foils("Sleep!")


def test_what_is_not_wrong_is_not_a_foil() -> None:
    rng = np.random.default_rng(0)
    assert foils_of("Dogs.", PHOTOGRAPHS, rng, lambda text: False) == []
    found = foils_of("A dog.", PHOTOGRAPHS, rng, lambda text: "cow" in text)
    assert [f.text for f in found if f.kind == "noun"] == ["A cow."]


def test_foils_of_drawn_scenes_are_false_in_what_was_changed() -> None:
    """The parser of the scenes' grammar is the oracle: a foil is a sentence of it, and false."""
    truth, rng = DrawnTruth(0), np.random.default_rng(0)
    facets = {"colour": "colour", "number": "count", "place": "setting"}
    seen: dict[str, int] = {}
    for number in range(40):
        image = f"scene-{number:05d}"
        scene = scene_of(image, 0)
        assert scene is not None
        for caption in describe(scene, rng):

            def is_wrong(text: str, image: str = image) -> bool:
                judged = truth.judge(image, text)
                return judged is not None and not all(judged.values())

            for foil in foils_of(caption, EXCHANGES, rng, is_wrong):
                seen[foil.kind] = seen.get(foil.kind, 0) + 1
                if foil.kind == "shuffled words":
                    continue
                judged = truth.judge(image, foil.text)
                assert judged is not None, foil
                assert not all(judged.values()), foil
                if foil.kind in facets:
                    assert not judged[facets[foil.kind]], (caption, foil)
                elif foil.kind.startswith("swapped"):
                    assert sorted(words(foil.text)) == sorted(words(caption)), foil
    assert seen["shuffled words"] == 200
    assert min(seen[kind] for kind in ("noun", "colour", "number", "place", "relation")) > 30
    assert min(seen[f"swapped {kind}s"] for kind in ("noun", "colour")) > 15


def test_facts_of_a_scene_are_those_of_the_program() -> None:
    truth = DrawnTruth(0)
    asked: set[tuple[str, str]] = set()
    for number in range(40):
        scene, facts = scene_of(f"scene-{number:05d}", 0), truth.facts(f"scene-{number:05d}")
        assert scene is not None
        asked |= facts.keys()
        shapes = {g.shape for g in scene.groups}
        assert {s for s in SHAPES if facts["presence", s] == "yes"} == shapes
        side = facts.get(("relation", "first shape left of second"))
        if side is not None:
            one, two = sorted(scene.groups, key=lambda g: g.shape)
            assert (side == "yes") == (one.box[2] <= two.box[0]) == (two.box[0] > one.box[0])
    assert {kind for kind, _ in asked} == {"presence", "count", "relation", "attribute"}
    assert truth.facts("another") == {}
