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
from pipeline.studies.near_duplicates.parts import Part

_NAMED = 3


def find_leaks(
    ranked: Sequence[str],
    features: str | Path,
    *,
    threshold: float | None = None,
    images: str | Path | Manifest | None = None,
    monitor: Monitor = QUIET,
) -> Duplicates:
    """Find near-duplicates of some images among all other images of a feature set.

    Parameters
    ----------
    ranked : sequence of str. Ids of the evaluated images, such as those of the test split.
    features : str or Path. Folder of a feature set with rows for these and other images, such as
        all splits.
    threshold : float or None. See `pipeline.studies.near_duplicates.find.duplicates`.
    images : str, Path, Manifest or None. Prepared dataset of the features, or its image folder, to
        compare pixels; None: compare features only.
    monitor : Monitor. Receives one line: how many ranked images have a near-duplicate.

    Returns
    -------
    Duplicates
        Groups of ranked images, with the split "ranked", and others, with the split "others".

    Raises
    ------
    MissingRows
        A ranked image has no row.
    WrongUsage, DuplicatesError, ShardError
        See `pipeline.studies.near_duplicates.find.duplicates`.
    """
    opened = FeatureSet(Path(features))
    rows = np.unique(opened.rows_of(ranked))
    others = np.setdiff1d(np.arange(len(opened)), rows)
    parts = [Part.of(opened, rows, "ranked"), Part.of(opened, others, "others")]
    found = near_duplicates(
        parts,
        between=True,
        threshold=threshold,
        images=None if images is None else {opened.folder: images_of(images, monitor.log)},
    )
    leaked = [image.id for image in found.images if image.split == "ranked"]
    named = f", first {', '.join(leaked[:_NAMED])}" if leaked else ""
    aligned = "" if images is None else ", pixels aligned"
    left_out = f"; {found.failed} rows without features left out" if found.failed else ""
    monitor.log(
        f"leaks: {len(leaked)} of {counted(len(rows), 'ranked image')} have a near-duplicate among "
        f"the {len(others)} others of {features} (cosine {found.threshold:g} or more{aligned})"
        f"{named}"
        f"{left_out}"
    )
    return found
