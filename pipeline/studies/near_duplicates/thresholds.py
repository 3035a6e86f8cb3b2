"""Calibrated threshold of each recipe; docs/duplicates.md has the measurements."""

from pipeline.images.recipes import RECIPES
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.studies.near_duplicates.parts import DuplicatesError

THRESHOLDS = {
    "dct-thumbnail": 0.7,
    "efficientnet-lite0-pool": 0.84,
}
"""Minimal cosine of near-duplicates by recipe, with the recipe's own weights."""


def default_threshold(features: FeatureSet) -> float:
    """Return the calibrated threshold of a feature set.

    Raises
    ------
    DuplicatesError
        No threshold is calibrated for its recipe, or its network has other weights.
    """
    header = features.index.header
    name = header.recipe.get("name")
    if name not in THRESHOLDS or header.weights != RECIPES[name].weights:
        raise DuplicatesError(
            f"{features.folder}: no threshold is calibrated for {name!r} with the weights "
            f"{header.weights!r}; set `threshold=...`, or extract one of "
            f"{', '.join(THRESHOLDS)} with its own weights. docs/duplicates.md "
            "explains the calibration"
        )
    return THRESHOLDS[name]
