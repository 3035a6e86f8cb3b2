"""The distinct phrases of a dataset, each of which is encoded once, however often it is said."""

import hashlib
from pathlib import Path

from pipeline.datasets.entries import Captions
from pipeline.datasets.regions import read_phrases


def plain_phrase(phrase: str) -> str:
    """Return a phrase in lower case with single blanks; phrases that agree in it are the same."""
    return " ".join(phrase.lower().split())


def phrase_key(phrase: str) -> str:
    """Return the row id of a phrase: the first 16 hex digits of the SHA-256 of `plain_phrase`."""
    return hashlib.sha256(plain_phrase(phrase).encode()).hexdigest()[:16]


def unique_phrases(dataset: str | Path, split: str | None = None) -> Captions:
    """Return the distinct phrases of a dataset, or of one split, first ones first, by row id.

    Raises
    ------
    DatasetError
        See `pipeline.datasets.regions.read_phrases`.
    """
    found: dict[str, str] = {}
    for phrase in read_phrases(dataset, split):
        found.setdefault(phrase_key(phrase.phrase), plain_phrase(phrase.phrase))
    return Captions([*found], [*found.values()])
