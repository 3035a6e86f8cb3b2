"""The mean of a caption's word vectors, with the averagings of papers and programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from pipeline.text.encoders.base import Encoder, VocabularyReport, Words, report_on_texts
from pipeline.text.encoders.options import WordOptions, encoder_option, vectors_option
from pipeline.text.tokenizers.by_name import words_in
from pipeline.text.tokenizers.tokenizer import TOKENIZERS, Tokenizer
from pipeline.text.vectors import WordVectors, load_vectors

_CHUNK = 1024  # captions per sum, which bounds the float64 rows in memory
_WORDS_AT_ONCE = 4096


@dataclass(frozen=True)
class Averaging:
    """Numerator and denominator of a mean."""

    rule: str  # the computation in words, for recipes; change both together
    unit: bool = False  # L2-normalise word vectors first; zero vectors then count as unknown
    all_tokens: bool = False  # divide by all tokens of the caption, not only by the known ones


AVERAGINGS: dict[str, Averaging] = {
    "known": Averaging("sum of vectors / number of tokens with a vector"),
    "all": Averaging("sum of vectors / number of tokens", all_tokens=True),
    "unit": Averaging("sum of vectors at norm 1 / number of tokens with a vector not 0", unit=True),
}
"""The averagings by name; `known` is the default.

known
    The programs of the authors of Word2VisualVec (Dong et al. 2018); gensim's `get_mean_vector`
    without its normalisation.
all
    Dong et al. 2018, eq. (2) as printed: divided by the length of the sentence.
unit
    fastText's `get_sentence_vector`.
"""


@dataclass(frozen=True)
class MeanOptions(WordOptions):
    """Options of `Mean`."""

    averaging: str = encoder_option("known", key="meaning", choices=AVERAGINGS)
    vectors: str = vectors_option()

    def words_of(self, texts: Sequence[str]) -> set[str]:
        return words_in(texts, self.words)


class Mean(Encoder):
    """The mean of a caption's word vectors.

    Repeated words count each time. A caption without a known token becomes the zero vector. Stop
    words are kept unless the tokenizer removes them, such as Word2VisualVec's "w2vv-filterstop".
    """

    Options: ClassVar = MeanOptions
    presets: ClassVar = (
        MeanOptions("mean", "mean"),
        MeanOptions("mean-all", "mean", averaging="all"),
        MeanOptions("mean-unit", "mean", averaging="unit"),
        MeanOptions("mean-w2vv", "mean", tokenizer="w2vv-filterstop"),
    )

    def __init__(
        self,
        vectors: WordVectors,
        tokenizer: Tokenizer = TOKENIZERS["treebank"],
        averaging: str = "known",  # in `AVERAGINGS`
    ) -> None:
        """Store the parts; the name is `mean[-<averaging>][-<tokenizer>]-<vectors>`."""
        self.vectors, self.tokenizer, self.averaging = vectors, tokenizer, averaging
        chosen = [name for name in (averaging, tokenizer.name) if name not in ("known", "treebank")]
        self.name = "-".join(("mean", *chosen, vectors.name))
        self.dim = vectors.dim
        self.weights = vectors.name, vectors.sha256
        self.trained_on = vectors.trained_on
        self.memory = vectors.matrix.nbytes

    @classmethod
    def load(cls, options: MeanOptions, folder: Path, words: Words) -> Self:
        return cls(load_vectors(options.vectors, words), options.words, options.averaging)

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "mean",
            "tokens": self.tokenizer.to_json(),
            "vectors": self.vectors.name,
            "mean": {"name": self.averaging, "rule": AVERAGINGS[self.averaging].rule},
            "oov": "adds nothing; zero vector if no token is known",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32, computed in float64."""
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), _CHUNK):
            self._encode_into(rows[start : start + _CHUNK], texts[start : start + _CHUNK])
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count words without a vector, with "unit" also those with a zero vector."""
        return {self.name: report_on_texts(texts, self.tokenizer, self._index)}

    def _encode_into(self, rows: npt.NDArray[np.float32], texts: Sequence[str]) -> None:
        index, averaging = self._index, AVERAGINGS[self.averaging]
        captions = [self.tokenizer.tokenize(text) for text in texts]
        positions = [[index[token] for token in tokens if token in index] for tokens in captions]
        counts = np.array([*map(len, positions)], dtype=np.int64)
        some = np.flatnonzero(counts)
        if not len(some):
            return
        used = [row for rows_of_caption in positions for row in rows_of_caption]
        # In float64, so that a row does not depend on the other captions of its block.
        words = self.vectors.matrix[used].astype(np.float64)
        if averaging.unit:
            words /= self._norms[used, None]
        # Only captions with a known word: reduceat does not return 0 for an empty segment.
        starts = np.concatenate(([0], np.cumsum(counts[some])[:-1]))
        sums = np.add.reduceat(words, starts, axis=0)
        lengths = np.array([len(tokens) for tokens in captions], dtype=np.int64)
        rows[some] = sums / (lengths if averaging.all_tokens else counts)[some, None]

    @cached_property
    def _index(self) -> dict[str, int]:
        """Row of each word that has a usable vector."""
        index = self.vectors.index
        if not AVERAGINGS[self.averaging].unit:
            return index
        return {word: row for word, row in index.items() if self._norms[row] > 0}

    @cached_property
    def _norms(self) -> npt.NDArray[np.float64]:
        """Norm of each word vector, (words,)."""
        matrix = self.vectors.matrix
        norms = np.empty(len(matrix))
        for start in range(0, len(matrix), _WORDS_AT_ONCE):
            block = matrix[start : start + _WORDS_AT_ONCE].astype(np.float64)
            norms[start : start + _WORDS_AT_ONCE] = np.linalg.norm(block, axis=1)
        return norms
