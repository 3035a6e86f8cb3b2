"""Word vectors in memory: every source is read into one `WordVectors`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError

MAX_DIM = 100_000
"""No file of word vectors is read whose header or first line says more."""

HEADER = re.compile(rb"(\d{1,12}) (\d{1,6})")
"""word2vec's first line, of text and of binary files: the number of words and the dimension."""

Row = tuple[str, str, npt.NDArray[np.float32]]
"""A word, where it stands in its file ("line 3", "word 3"), its vector (dim,)."""


class VectorsError(PipelineError):
    """A source of word vectors is unknown, missing, or not as its format says."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, in the order of the source.

    Attributes
    ----------
    name : "glove-6b-50d", or the file's name without its suffix.
    words : the words, each once.
    matrix : (words, dim) float32, finite; mapped from the file where it is a stored one.
    sha256 : of the whole source file, whichever words were wanted; of the canonical JSON
        `{file name: SHA-256}` where the source has several files; of the canonical JSON of the
        settings and the corpus's SHA-256 where the vectors were trained just now.
    stored_from : the `source_sha256` that a stored file states; None for all other sources.
    trained_on : names of the datasets that they were trained on, where the source says it.
    """

    name: str
    words: tuple[str, ...]
    matrix: npt.NDArray[np.float32]
    sha256: str
    stored_from: str | None = None
    trained_on: tuple[str, ...] = ()

    @property
    def source_sha256(self) -> str:
        """SHA-256 of what the numbers come from: equal for all that is stored of one source."""
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
    """Return the words of `rows`, each once, and their matrix (words, dim).

    Raises
    ------
    VectorsError
        A word stands there twice with different vectors; equal repeats count once.
    """
    found: dict[str, tuple[str, npt.NDArray[np.float32]]] = {}
    for word, where, vector in rows:
        earlier = found.setdefault(word, (where, vector))
        if not np.array_equal(earlier[1], vector):
            raise VectorsError(
                f"{path}: the word {word!r} has two different vectors, on {earlier[0]} and on "
                f"{where}; remove one of them"
            )
    matrix = np.empty((len(found), dim), dtype=np.float32)
    for row, (_, vector) in enumerate(found.values()):
        matrix[row] = vector
    return tuple(found), matrix


def decoded(word: bytes, where: str) -> str:
    """Return a word of a file as text.

    Raises
    ------
    VectorsError
        It is not UTF-8.
    """
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise VectorsError(
            f"{where}: the word {word[:40]!r} is not UTF-8; convert the file to UTF-8"
        ) from error
