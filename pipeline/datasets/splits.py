"""Choice of the training, validation and test splits of a dataset."""

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
    # Without a test split, results are reported on the validation split.
    "test": ("test", "val", "dev", "validation"),
}

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
"""Split fractions of a source without splits."""


def split_for(role: Role, manifest: Manifest, named: str | None = None) -> str:
    """Return the split for a role: `named`, or the first of `USUAL_NAMES` that exists."""
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
    """Return the splits named in a text, each once: one, several separated by commas, or "all"."""
    if named == ALL and ALL not in manifest.counts:
        return tuple(manifest.counts)
    splits = tuple(dict.fromkeys(name.strip() for name in named.split(",")))
    for name in splits:
        manifest.select(name)
    return splits


def require_captions(manifest: Manifest, split: str | None = None) -> None:
    """Raise unless a dataset, or a split of it, has captions to train on."""
    if not manifest.select(split).num_captions.any():
        where = "" if split is None else f" in its split {split!r}"
        raise DatasetError(
            f"the dataset {manifest.name!r} has no captions{where}, which experiments need for "
            f"training and evaluation; prepare captioned {manifest.media} (`pipeline prepare "
            "folder --captions FILE`), or embed it with a head trained on another dataset "
            "(`pipeline embed --experiment NAME --head DIR --dataset DIR`), or search it without "
            "training (`pipeline search --image FILE --features DIR`)"
        )


def split_by_hash(ids: Iterable[str], fractions: dict[str, float]) -> dict[str, str]:
    """Assign each id a split by its SHA-256, so that adding images moves no other."""
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
