"""The ground truth of drawn scenes, computed again from their seed."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from pipeline.datasets.image_truth import WordKind
from pipeline.datasets.manifest import Manifest
from pipeline.scenes.draw_scenes import scene_of
from pipeline.scenes.parse import parse
from pipeline.scenes.truth import FACETS, truth_of
from pipeline.scenes.world import COLOURS, SHAPES

KINDS = (
    WordKind.of("nouns", "places", " ".join(SHAPES)),
    WordKind.of("colours", "nouns", " ".join(COLOURS)),
    WordKind.of("counts", "nouns", "one,1 two,2 three,3 four,4"),
    WordKind.of(
        "places", "nouns", "grass sky sand water night brick wooden,wood snow sunset tiled,tiles"
    ),
)
"""Words that are asked of drawn scenes; their forms include the values of `Group` and `Scene`."""


@dataclass(frozen=True)
class DrawnTruth:
    """What is true of the scenes of a seed.

    Both a `pipeline.datasets.image_truth.CaptionTruth` and an `ImageWords`.

    Attributes
    ----------
    seed : that of `pipeline.scenes.draw_scenes.draw_scenes`.
    """

    seed: int

    @property
    def facets(self) -> Sequence[str]:
        """What the grammar can say of a scene."""
        return FACETS

    @property
    def kinds(self) -> Sequence[WordKind]:
        """Shapes, colours, counts and settings."""
        return KINDS

    def judge(self, image: str, caption: str) -> Mapping[str, bool] | None:
        """Return what is right of a caption; None if the grammar does not have it."""
        scene, said = scene_of(image, self.seed), parse(caption)
        return None if scene is None or said is None else truth_of(said, scene).right

    def words(self, image: str) -> Mapping[str, Set[str]]:
        """Return the values of a scene by kind; nothing of an image that is not drawn."""
        scene = scene_of(image, self.seed)
        if scene is None:
            return {}
        return {
            "nouns": {group.shape for group in scene.groups},
            "colours": {group.colour for group in scene.groups},
            "counts": {str(group.count) for group in scene.groups},
            "places": {scene.setting},
        }


def drawn_truth(manifest: Manifest) -> DrawnTruth | None:
    """Return the truth of a dataset that `draw_scenes` made; None of any other."""
    seed = manifest.notes.get("seed")
    return DrawnTruth(seed) if manifest.name == "scenes" and isinstance(seed, int) else None
