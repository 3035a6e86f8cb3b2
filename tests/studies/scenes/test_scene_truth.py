"""Captions read back: those of the grammar are all true, and what is changed in them is found."""

import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.studies.scenes.draw_scenes import scene_of
from pipeline.studies.scenes.drawn_truth import DrawnTruth, drawn_truth
from pipeline.studies.scenes.grammar import describe
from pipeline.studies.scenes.parse import parse
from pipeline.studies.scenes.sample import sample_scene
from pipeline.studies.scenes.truth import truth_of
from pipeline.studies.scenes.world import Arrangement, Group, Scene

STARS = Group("star", "red", "striped", "small", 18, ((40, 100), (80, 140)))
FISH = Group("fish", "blue", "plain", "large", 45, ((190, 120),))
SCENE = Scene(Arrangement.SIDE_BY_SIDE, "grass", (STARS, FISH))
IN_RING = Scene(
    Arrangement.INSIDE,
    "snow",
    (
        Group("ring", "black", "plain", "large", 90, ((128, 128),)),
        Group("heart", "pink", "dotted", "small", 18, ((128, 128),)),
    ),
)
ROW = Scene(
    Arrangement.BETWEEN,
    "sand",
    tuple(
        Group(shape, colour, "plain", "small", 18, ((x, 128),))
        for shape, colour, x in (("cross", "red", 40), ("fish", "blue", 128), ("star", "pink", 210))
    ),
    "row",
)


@pytest.mark.parametrize("index", range(0, 150, 3))
def test_every_caption_of_the_grammar_is_parsed_and_true(index: int) -> None:
    rng = np.random.Generator(np.random.PCG64((5, index)))
    scene = sample_scene(rng)
    for caption in describe(scene, rng):
        bare = re.sub(r"[^a-z ]", "", caption.lower())
        said = parse(caption)
        assert said is not None, caption
        assert said == parse(bare)
        assert all(truth_of(said, scene).values()), caption


@pytest.mark.parametrize(
    ("scene", "caption", "wrong"),
    [
        (SCENE, "Two red stars to the left of a blue fish on the grass.", set()),
        (SCENE, "Two red stars to the right of a blue fish on a lawn.", {"relation"}),
        (SCENE, "Two red hearts to the left of a blue fish.", {"shape"}),
        (SCENE, "Two blue stars to the left of a red fish.", {"colour"}),
        (SCENE, "Three stars beside a fish on a brick wall.", {"count", "setting"}),
        (SCENE, "The star is red and the fish is blue.", {"count"}),
        (SCENE, "The stars are dotted and red.", {"texture"}),
        (SCENE, "The stars are bigger than the fish.", {"relation"}),
        (SCENE, "A tiny blue fish on the right.", {"size"}),
        (SCENE, "There are three objects in all: two red stars and a fish.", set()),
        (SCENE, "There are four objects in all: two red stars and a fish.", {"count"}),
        (SCENE, "Only a fish.", {"count"}),
        (SCENE, "A green ring is left of a pink heart.", {"shape", "colour", "count", "relation"}),
        (SCENE, "A fish is left of a fish.", {"relation"}),
        (IN_RING, "A heart with spots is surrounded by a black ring.", set()),
        (IN_RING, "A pink heart surrounds a black ring.", {"relation"}),
        (ROW, "A fish is between a star and a cross.", set()),
        (ROW, "A fish and a star flank a cross.", {"relation"}),
        (ROW, "From left to right there are a cross, a fish and a star.", set()),
        (ROW, "From right to left there are a cross, a fish and a star.", {"relation"}),
    ],
)
def test_what_is_wrong_is_found(scene: Scene, caption: str, wrong: set[str]) -> None:
    said = parse(caption)
    assert said is not None
    truth = truth_of(said, scene)
    assert {facet for facet, right in truth.items() if not right} == wrong


@pytest.mark.parametrize(
    "caption",
    ["", "two star", "a stars", "a red blue star", "a red star left of", "the dog is red",
     "on the grass", "a star a star a star", "there is there is a star"],
)  # fmt: skip
def test_what_the_grammar_would_not_say_is_not_parsed(caption: str) -> None:
    assert parse(caption) is None


def test_a_scene_is_found_again_by_its_image() -> None:
    rng = np.random.Generator(np.random.PCG64((3, 41)))
    assert scene_of("scene-00041", seed=3) == sample_scene(rng)
    assert scene_of("dog.jpg", seed=3) is None


def test_a_drawn_dataset_has_a_truth() -> None:
    def manifest(name: str, **notes: int) -> Manifest:
        entry = ImageEntry("scene-00041", "x.png", "test", ("A star.",))
        return Manifest(name, Path(), (entry,), "", "", notes)

    truth = drawn_truth(manifest("scenes", seed=3))
    assert truth == DrawnTruth(3)
    assert drawn_truth(manifest("scenes")) is drawn_truth(manifest("mine", seed=3)) is None
    scene = sample_scene(np.random.Generator(np.random.PCG64((3, 41))))
    words = truth.words("scene-00041")
    assert words["nouns"] == {group.shape for group in scene.groups}
    assert words["places"] == {scene.setting}
    assert words.keys() == {kind.name for kind in truth.kinds}
    (group, *_) = scene.groups
    assert truth.judge("scene-00041", f"a {group.shape}") is not None
    assert truth.judge("scene-00041", "the dog is red") is None
    assert truth.judge("dog.jpg", f"a {group.shape}") is None
    assert truth.words("dog.jpg") == {}
