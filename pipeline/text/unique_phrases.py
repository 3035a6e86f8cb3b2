"""The distinct phrases of a dataset; each is encoded once."""

from pathlib import Path

from pipeline.datasets.entries import Captions
from pipeline.datasets.regions import read_phrases


def unique_phrases(dataset: str | Path, split: str | None = None) -> Captions:
    """Return the distinct phrases of a dataset or split, in order of occurrence, by row id.

    Raises
    ------
    DatasetError
        See `pipeline.datasets.regions.read_phrases`.
    """
    found: dict[str, str] = {}
    for phrase in read_phrases(dataset, split):
        found.setdefault(phrase.key, phrase.plain)
    return Captions([*found], [*found.values()])
