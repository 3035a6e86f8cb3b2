"""An encoder of captions, and a reader of a dataset: what another package adds for texts."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

import pipeline
from pipeline.datasets.readers.collector import Collector
from pipeline.datasets.source import located_lines
from pipeline.text.encoders.base import Encoder, VocabularyReport, Words
from pipeline.text.encoders.options import EncoderOptions

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Letters(Encoder):
    """Counts of the letters of a caption."""

    Options: ClassVar = EncoderOptions
    presets: ClassVar = (EncoderOptions("letters", "letters"),)

    name, dim = "letters", len(LETTERS)
    weights = "letters", hashlib.sha256().hexdigest()

    @classmethod
    def load(cls, options: EncoderOptions, folder: Path, words: Words) -> Self:
        return cls()

    def recipe(self) -> dict[str, Any]:
        return {"name": self.name, "encoder": "letters", "dim": self.dim}

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        counts = [[text.lower().count(letter) for letter in LETTERS] for text in texts]
        return np.array(counts, np.float32).reshape(len(texts), self.dim)

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        return {}


def read_lines(
    root: str | Path, *, name: str = "lines", expect: Mapping[str, int] | None = None
) -> pipeline.Manifest:
    """Read a folder of images with `captions.txt`, whose lines are "SPLIT FILE CAPTION".

    Parameters
    ----------
    root : str or Path. Folder of the images and of `captions.txt`.
    name : str. Name of the dataset.
    expect : mapping of str to int, or None. Required number of images of a split.
    """
    found, file = Collector(Path(root)), Path(root) / "captions.txt"
    for where, line in located_lines(file):
        split, image, caption = line.split(" ", 2)
        found.once(image, where)
        found.add(image, image, found.split(split, where), [found.caption(caption, where)], where)
    return found.manifest(name, [file], expect, source="captions.txt", licence="unknown")
