"""Which split of a dataset fits heads, which chooses among epochs, which the tables are about."""

import hashlib
from collections.abc import Iterable
from typing import Literal

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest

Role = Literal["train", "validation", "test"]

USUAL_NAMES: dict[Role, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("val", "dev", "validation"),
    # A dataset without a test split is reported on by the split that chose the epochs.
    "test": ("test", "val", "dev", "validation"),
}


def split_for(role: Role, manifest: Manifest, named: str | None = None) -> str:
    """Return the split of a dataset that has a role.

    Parameters
    ----------
    role : "train" fits, "validation" chooses among epochs, "test" is reported on.
    manifest : the dataset.
    named : the split's name; None: the first of `USUAL_NAMES` that the dataset has.

    Raises
    ------
    DatasetError
        The dataset has no such split.
    """
    there = manifest.counts
    for name in USUAL_NAMES[role] if named is None else (named,):
        if name in there:
            return name
    sought = repr(named) if named else " or ".join(map(repr, USUAL_NAMES[role]))
    raise DatasetError(
        f"the dataset {manifest.name!r} has no split {sought} for {role}; it has "
        f"{', '.join(there) or 'none'}: name one under `splits` of params.yaml or as an option"
    )


def split_by_hash(ids: Iterable[str], fractions: dict[str, float]) -> dict[str, str]:
    """Give each id a split by the SHA-256 of the id, so that adding images moves none.

    Parameters
    ----------
    ids : image ids.
    fractions : split name to its share; the shares sum to 1.
    """
    bounds: list[tuple[float, str]] = []
    total = 0.0
    for split, share in fractions.items():
        total += share
        bounds.append((total, split))
    chosen = {}
    for image_id in ids:
        u = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") / 2**64
        chosen[image_id] = next((s for bound, s in bounds if u < bound), bounds[-1][1])
    return chosen
