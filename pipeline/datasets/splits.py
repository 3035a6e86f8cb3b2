"""Which split of a dataset fits heads, which chooses among epochs, which the tables are about."""

import hashlib
from collections.abc import Iterable
from typing import Literal

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest

Role = Literal["train", "validation", "test"]

ALL = "all"
"""Every split of a dataset."""

USUAL_NAMES: dict[Role, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("val", "dev", "validation"),
    # A dataset without a test split is reported on by the split that chose the epochs.
    "test": ("test", "val", "dev", "validation"),
}

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
"""Splits of a source that names none."""


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
        f"{', '.join(there) or 'none'}: name its splits with `train_split=...`, "
        "`validation_split=...` and `test_split=...`, or under `splits` of params.yaml"
    )


def splits_of(manifest: Manifest, named: str) -> tuple[str, ...]:
    """Return the splits of a dataset that a text names, each once.

    Parameters
    ----------
    manifest : the dataset.
    named : the name of a split, several with commas between, or "all".

    Raises
    ------
    DatasetError
        The dataset has no such split.
    """
    if named == ALL and ALL not in manifest.counts:
        return tuple(manifest.counts)
    found = tuple(dict.fromkeys(name.strip() for name in named.split(",")))
    for name in found:
        manifest.select(name)
    return found


def require_captions(manifest: Manifest, split: str | None = None) -> None:
    """Check that a dataset, or a split of it, has captions to train on.

    Raises
    ------
    DatasetError
    """
    if not manifest.select(split).num_captions.any():
        where = "" if split is None else f" in its split {split!r}"
        raise DatasetError(
            f"the dataset {manifest.name!r} has no captions{where}, and captioned {manifest.media} "
            "are what experiments are trained and measured on; prepare it with captions (`pipeline "
            "prepare folder --captions FILE`), or embed it with a head that was trained on another "
            "dataset (`pipeline embed --experiment NAME --head DIR --dataset DIR`), or search it "
            "without training (`pipeline search --image FILE --features DIR`)"
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
