"""Test images with a near-duplicate among all other images: leaks from training to test."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import Manifest
from pipeline.datasets.plain_images import images_of
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.wording import counted
from pipeline.studies.near_duplicates.find import Duplicates, near_duplicates
from pipeline.studies.near_duplicates.parts import Subset

_NAMED = 3


def find_leaks(
    ranked: Sequence[str],
    features: str | Path,
    *,
    threshold: float | None = None,
    images: str | Path | Manifest | None = None,
    monitor: Monitor = QUIET,
) -> Duplicates:
    """Find near-duplicates of `ranked` images among all other images of a feature set."""
    opened = FeatureSet(Path(features))
    rows = np.unique(opened.rows_of(ranked))
    others = np.setdiff1d(np.arange(len(opened)), rows)
    parts = [Subset.of(opened, rows, "ranked"), Subset.of(opened, others, "others")]
    result = near_duplicates(
        parts,
        between=True,
        threshold=threshold,
        images=None
        if images is None
        else {opened.folder: images_of(images, monitor.log, follow_links=True)},
    )
    leaked = [image.id for image in result.images if image.split == "ranked"]
    named = f", first {', '.join(leaked[:_NAMED])}" if leaked else ""
    aligned = "" if images is None else ", pixels aligned"
    left_out = f"; {result.failed} rows without features left out" if result.failed else ""
    monitor.log(
        f"leaks: {len(leaked)} of {counted(len(rows), 'ranked image')} have a near-duplicate among "
        f"the {len(others)} others of {features} (cosine {result.threshold:g} or more{aligned})"
        f"{named}"
        f"{left_out}"
    )
    return result
