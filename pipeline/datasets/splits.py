"""Which split of a dataset fits heads, which chooses among epochs, which the tables are about."""

from typing import Literal

from pipeline.datasets.manifest import DatasetError, Manifest

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
