"""Phrases and boxes of a prepared dataset, read from its `regions.jsonl`."""

from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import (
    REGIONS_FILE,
    read_description,
    read_manifest,
    require_recorded,
)
from pipeline.datasets.phrases import RegionPhrase
from pipeline.store.hashing import sha256_of_file
from pipeline.store.schema import decode_lines


def read_phrases(dataset: str | Path, split: str | None = None) -> tuple[RegionPhrase, ...]:
    """Return the phrases of a dataset, or of one split, in file order.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    split : str or None. Only phrases of this split's images; None: all.

    Raises
    ------
    DatasetError
        The dataset has no phrases with boxes, no such split, or its file does not match
        `dataset.json`.

    Examples
    --------
    >>> phrase = pipeline.read_phrases("data/mine", "test")[0]
    >>> phrase.image, phrase.phrase, len(phrase.boxes)
    ('scene-00002', '...', 1)
    """
    path = _checked_file(Path(dataset))
    images = {entry.id for entry in read_manifest(dataset).select(split)}
    try:
        with path.open("rb") as stream:
            return tuple(p for p in decode_lines(stream, RegionPhrase) if p.image in images)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}; prepare the dataset again") from error


def has_phrases(dataset: str | Path) -> bool:
    """Return whether a prepared dataset has phrases with boxes."""
    try:
        return read_description(dataset).regions_sha256 is not None
    except DatasetError:
        return False


def regions_sha256(dataset: str | Path) -> str:
    """Return the SHA-256 of a dataset's `regions.jsonl`, checked."""
    return sha256_of_file(_checked_file(Path(dataset)))


def _checked_file(folder: Path) -> Path:
    path, description = folder / REGIONS_FILE, read_description(folder)
    if description.regions_sha256 is None:
        raise DatasetError(
            f"{folder}: the dataset {description.name!r} has no phrases with boxes; `pipeline "
            "prepare entities`, `regions`, `coco --boxes` and `scenes` make datasets that have them"
        )
    require_recorded(path, description.regions_sha256)
    return path
