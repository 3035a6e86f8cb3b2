"""The ground truth of drawn scenes, recomputed from their seed."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from pipeline.datasets.image_truth import Exchange, WordKind
from pipeline.datasets.manifest import Manifest
from pipeline.studies.scenes.draw_scenes import scene_of
from pipeline.studies.scenes.parse import parse
from pipeline.studies.scenes.truth import FACETS, truth_of
from pipeline.studies.scenes.words import (
    COLOUR_WORDS,
    COUNT_WORDS,
    NUMBERS,
    SETTING_WORDS,
    SHAPE_WORDS,
)
from pipeline.studies.scenes.world import COLOURS, SETTINGS, SHAPES, Arrangement, Scene

KINDS = (
    WordKind.of("nouns", "places", " ".join(SHAPES)),
    WordKind.of("colours", "nouns", " ".join(COLOURS)),
    WordKind.of("counts", "nouns", "one,1 two,2 three,3 four,4"),
    WordKind.of(
        "places", "nouns", "grass sky sand water night brick wooden,wood snow sunset tiled,tiles"
    ),
)
"""Query words for drawn scenes; their forms include the values of `Group` and `Scene`."""

EXCHANGES = (
    Exchange("noun", tuple(tuple(zip(*names, strict=True)) for names in SHAPE_WORDS.values())),
    Exchange("colour", tuple((tuple(dict.fromkeys(w)),) for w in COLOUR_WORDS.values())),
    Exchange(
        "number",
        (
            *((tuple(dict.fromkeys(w)),) for n, w in COUNT_WORDS.items() if n > 1),
            *(((word,),) for word in NUMBERS[3:]),
        ),
    ),
    Exchange("place", tuple(tuple(zip(*words, strict=True)) for words in SETTING_WORDS.values())),
)
"""Exchangeable phrases in captions of drawn scenes."""


@dataclass(frozen=True)
class DrawnTruth:
    """Ground truth of scenes: a `CaptionTruth`, an `ImageWords` and a `ProbeTruth`."""

    seed: int  # that of `draw_scenes`

    @property
    def facets(self) -> Sequence[str]:
        """Facets that the grammar can express."""
        return FACETS

    @property
    def kinds(self) -> Sequence[WordKind]:
        """Shapes, colours, counts and settings."""
        return KINDS

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """Nouns, colours, numbers and settings."""
        return EXCHANGES

    def facts(self, image: str) -> Mapping[tuple[str, str], str]:
        """Return presence, counts, relations and attributes of a scene by (kind, question)."""
        scene = scene_of(image, self.seed)
        return {} if scene is None else _facts(scene)

    def judge(self, image: str, caption: str) -> Mapping[str, bool] | None:
        """Return the correctness of a caption by facet; None if the grammar cannot parse it."""
        scene, parsed = scene_of(image, self.seed), parse(caption)
        return None if scene is None or parsed is None else truth_of(parsed, scene)

    def words(self, image: str) -> Mapping[str, Set[str]]:
        """Return the values of a scene by kind; {} for an image that is not drawn."""
        scene = scene_of(image, self.seed)
        if scene is None:
            return {}
        return {
            "nouns": {group.shape for group in scene.groups},
            "colours": {group.colour for group in scene.groups},
            "counts": {str(group.count) for group in scene.groups},
            "places": {scene.setting},
        }


def _facts(scene: Scene) -> dict[tuple[str, str], str]:
    shapes = {group.shape for group in scene.groups}
    colours = {group.colour for group in scene.groups}
    present = {
        **{shape: shape in shapes for shape in SHAPES},
        **{colour: colour in colours for colour in COLOURS},
        **{f"background {setting}": setting == scene.setting for setting in SETTINGS},
    }
    total = sum(group.count for group in scene.groups)
    facts = {("presence", what): _yes(so) for what, so in present.items()}
    facts |= {
        ("count", "objects"): str(total) if total < 5 else "5 or more",
        ("count", "groups"): str(len(scene.groups)),
        ("relation", "layout"): scene.arrangement.value,
    }
    # Of pairs of groups in the alphabetical order of their shapes, so that presence alone does not
    # determine the answer.
    if scene.arrangement in (Arrangement.SIDE_BY_SIDE, Arrangement.STACKED):
        one, two = sorted(scene.groups, key=lambda group: group.shape)
        side = "left of" if scene.arrangement is Arrangement.SIDE_BY_SIDE else "above"
        facts |= {
            ("relation", f"first shape {side} second"): _yes(one is scene.groups[0]),
            ("attribute", "first shape has first colour"): _yes(one.colour < two.colour),
            ("attribute", "first shape is the more numerous"): _yes(one.count > two.count),
        }
    return facts


def _yes(so: bool) -> str:
    return "yes" if so else "no"


def drawn_truth(manifest: Manifest) -> DrawnTruth | None:
    """Return the truth of a dataset of `draw_scenes`; None for any other."""
    seed = manifest.notes.get("seed")
    return DrawnTruth(seed) if manifest.name == "scenes" and isinstance(seed, int) else None
