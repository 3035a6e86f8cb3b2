"""Word vectors in memory: the common type of all sources."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.store.errors import PipelineError

MAX_DIM = 100_000
"""Maximum dimension that a header or first line may state."""

HEADER = re.compile(rb"(\d{1,12}) (\d{1,6})")
"""word2vec's first line, in text and binary files: number of words and dimension."""

Row = tuple[str, str, npt.NDArray[np.float32]]
"""A word, its place in the file ("line 3", "word 3"), and its vector (dim,)."""


class VectorsError(PipelineError):
    """A source of word vectors is unknown, missing or damaged."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, in the order of the source."""

    name: str  # "glove-6b-50d", or the file name without its suffix
    words: tuple[str, ...]  # distinct
    matrix: npt.NDArray[np.float32]  # (words, dim), finite; memory-mapped for a stored file
    # SHA-256 of the whole source file, whichever words are loaded; of the canonical JSON
    # `{file name: SHA-256}` for several files; of that of settings and corpus for new vectors.
    sha256: str
    stored_from: str | None = None  # `source_sha256` of a stored file; None for other sources
    trained_on: tuple[str, ...] = ()  # names of the training datasets, if known
    notes: Mapping[str, int] = field(default_factory=dict)  # what of the source was left out

    @property
    def source_sha256(self) -> str:
        """SHA-256 of the numbers' origin: equal for all files stored from one source."""
        return self.sha256 if self.stored_from is None else self.stored_from

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return int(self.matrix.shape[1])

    @cached_property
    def index(self) -> dict[str, int]:
        """Row of each word in `matrix`."""
        return {word: row for row, word in enumerate(self.words)}


def collect(
    path: Path, dim: int, rows: Iterator[Row]
) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
    """Return the distinct words of rows and their matrix (words, dim); equal repeats count once."""
    vectors: dict[str, tuple[str, npt.NDArray[np.float32]]] = {}
    for word, where, vector in rows:
        earlier = vectors.setdefault(word, (where, vector))
        if not np.array_equal(earlier[1], vector):
            raise VectorsError(
                f"{path}: the word {word!r} has two different vectors, on {earlier[0]} and on "
                f"{where}; remove one of them"
            )
    matrix = np.empty((len(vectors), dim), dtype=np.float32)
    for row, (_, vector) in enumerate(vectors.values()):
        matrix[row] = vector
    return tuple(vectors), matrix


def decoded(word: bytes, notes: Counter[str]) -> str | None:
    """Return a word of a file as text; None, and a count, for one that is not UTF-8.

    Published models have such words, which their programs have cut at a number of bytes.
    """
    try:
        return word.decode()
    except UnicodeDecodeError:
        notes["words that are not UTF-8, which are left out"] += 1
        return None
