"""fastText's `.bin`: words and character n-grams, with vectors for out-of-vocabulary words.

The fastText library trusts the files that it loads, so their structure is checked here first.
"""

import mmap
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The compiled part of the package fasttext: `fasttext.load_model` writes to stderr, and
# `fasttext.train_unsupervised` has no seed.
import fasttext_pybind
import numpy as np
import numpy.typing as npt

from pipeline.text.vectors.table import VectorsError, decoded

_VERSIONS = (11, 12)
_ARGUMENTS = "<12id"  # Args::save: dim first, then ..., bucket, minn, maxn, lrUpdateRate, t
_DICTIONARY = "<3i2q"  # Dictionary::save: entries, words, labels, tokens, pruned n-grams
_ENTRY = "<qb"  # after each word and its NUL: count, kind


def read_subwords(
    path: Path, keep: frozenset[str] | None, notes: Counter[str]
) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
    """Return words and matrix (words, dim) float32 of a fastText model of version 11 or 12.

    Words in `keep` outside the dictionary get the mean of their n-grams' vectors, as in fastText's
    own `get_word_vector`; None loads the dictionary.
    """
    words = _check(path, notes)
    model = fasttext_pybind.fasttext()
    try:
        model.loadModel(str(path))
    except (ValueError, RuntimeError, MemoryError) as error:
        raise VectorsError(f"{path}: fastText cannot load it ({error})") from error
    words_with_vector, matrix = vectors_of(model, words, keep)
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        bad = words_with_vector[int(np.argmin(finite))]
        raise VectorsError(f"{path}: the vector of {bad!r} has NaN or infinite values")
    return words_with_vector, matrix


def vectors_of(
    model: Any, words: Sequence[str], keep: frozenset[str] | None
) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
    """Return the words of `keep` with a vector in a `fasttext_pybind.fasttext`, and their matrix.

    Words of the dictionary `words` (None: all) in its order, then others that have an n-gram,
    sorted.
    """
    selected = [word for word in words if keep is None or word in keep]
    others = sorted((keep or frozenset()).difference(words))
    selected += [word for word in others if model.getSubwords(word, "strict")[0]]
    vector = fasttext_pybind.Vector(model.getArgs().dim)
    matrix = np.empty((len(selected), model.getArgs().dim), dtype=np.float32)
    for row, word in enumerate(selected):
        model.getWordVector(vector, word)
        matrix[row] = np.array(vector)
    return tuple(selected), matrix


def _check(path: Path, notes: Counter[str]) -> list[str]:
    """Check the structure that fastText will read, and return the dictionary's valid words."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        model = _Cursor(path, data)
        _, version = model.take("<2i", "header")
        if version not in _VERSIONS:
            raise VectorsError(
                f"{path}: is a fastText model of version {version}, expected 11 or 12; save it "
                "with a current fastText"
            )
        arguments = model.take(_ARGUMENTS, "arguments")
        dim, bucket, longest = arguments[0], arguments[8], arguments[10]
        entries, number_of_words, labels, _, pruned = model.take(_DICTIONARY, "dictionary")
        words = [model.entry(number, entries, notes) for number in range(1, entries + 1)]
        model.skip(8 * max(pruned, 0), "pruned n-grams")
        shapes = []
        for name in ("input", "output"):
            (quantised,) = model.take("<?", f"{name} matrix")
            if quantised:
                raise VectorsError(
                    f"{path}: is a quantised fastText model, which keeps only approximate "
                    "vectors; use the .bin that it was made from"
                )
            rows, columns = model.take("<2q", f"{name} matrix")
            model.skip(4 * max(rows, 0) * max(columns, 0), f"{rows} x {columns} {name} matrix")
            shapes.append((rows, columns))
        if (
            shapes[0] != (number_of_words + bucket, dim)
            or shapes[1][1] != dim
            or entries != number_of_words + labels
            or min(number_of_words, labels, bucket) < 0
            or (bucket == 0 and longest > 0)
            or model.left
        ):
            raise VectorsError(
                f"{path}: its parts are inconsistent ({entries} entries, {number_of_words} "
                f"words, {bucket} n-grams, dimension {dim}, matrices of shape {shapes}, "
                f"{model.left} bytes at the end); is this the file that fastText wrote?"
            )
        return [word for word in words[:number_of_words] if word is not None]


class _Cursor:
    """A position in the bytes of a model."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def skip(self, size: int, what: str) -> None:
        if size > self.left:
            raise VectorsError(
                f"{self._path}: ends inside its {what}: {size} bytes expected, {self.left} left; "
                "is the download complete?"
            )
        self._at += size

    def take(self, form: str, what: str) -> tuple[Any, ...]:
        """Return the values of a `struct` format."""
        start = self._at
        self.skip(struct.calcsize(form), what)
        return struct.unpack(form, self._data[start : self._at])

    def entry(self, number: int, entries: int, notes: Counter[str]) -> str | None:
        """Return the word of the next dictionary entry; None if it is not UTF-8."""
        where = f"dictionary, word {number} of {entries}"
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise VectorsError(f"{self._path}: ends inside its {where}; is the download complete?")
        word = decoded(self._data[self._at : end], notes)
        self._at = end + 1
        self.skip(struct.calcsize(_ENTRY), where)
        return word
