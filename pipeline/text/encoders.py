"""Sentence encoders: captions in, one fixed-length float32 row each out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.text.tokens import TOKENIZER, tokenize
from pipeline.text.vectors import WordVectors

Caption = str | Sequence[str]
"""A caption's text, or its tokens where the caller has them already."""

_CHUNK = 1024  # captions summed at once, which bounds the float64 rows in memory


class CaptionEncoder(Protocol):
    """What every sentence encoder offers.

    A caption's row depends on that caption alone, not on its neighbours in the call.
    """

    @property
    def name(self) -> str:
        """The encoder and what it was made from, such as "mean-glove-6b-50d"."""

    @property
    def dim(self) -> int:
        """Length of each row."""

    def recipe(self) -> dict[str, Any]:
        """Return, as JSON values, everything that changes the rows save the vectors' SHA-256."""

    def encode(self, captions: Sequence[Caption]) -> npt.NDArray[np.float32]:
        """Return (captions, dim) float32, finite."""


@dataclass(frozen=True)
class VocabularyReport:
    """How much of some captions an encoder's vocabulary covers.

    Attributes
    ----------
    captions, tokens, words : how many captions, tokens and distinct words there are.
    oov_tokens : how many of the tokens are out of vocabulary.
    oov_words : those words with their counts, most frequent first, then by the alphabet.
    unknown_captions : positions of the captions that have no known word.
    """

    captions: int
    tokens: int
    words: int
    oov_tokens: int
    oov_words: tuple[tuple[str, int], ...]
    unknown_captions: tuple[int, ...]

    def text(self) -> str:
        """Return one paragraph for a person."""
        share = 100 * self.oov_tokens / max(self.tokens, 1)
        parts = [
            f"{self.captions} captions, {self.tokens} tokens, {self.words} distinct words; "
            f"{self.oov_tokens} tokens ({share:.2f} %) of {len(self.oov_words)} words are out of "
            "vocabulary"
        ]
        if self.oov_words:
            most = ", ".join(f"{word[:40]} ({count})" for word, count in self.oov_words[:10])
            parts.append(f", most often {most}")
        parts.append(f". {len(self.unknown_captions)} captions have no known word")
        if self.unknown_captions:
            first = ", ".join(map(str, self.unknown_captions[:5]))
            parts.append(f" and get a zero vector (first positions: {first})")
        return "".join(parts) + "."


@dataclass(frozen=True, eq=False)
class MeanVectors:
    """The mean of a caption's word vectors.

    Dong et al. 2018 (Word2VisualVec), eq. (2). Deviations: the denominator is the number of
    tokens that have a vector, not the sentence's length (so do the authors' own programs), and
    no stop words are removed. Repeats count as often as they occur. A caption without a known
    token gets the zero vector. Word vectors are taken as they are, not normalised.
    """

    vectors: WordVectors

    @property
    def name(self) -> str:
        """`mean-<vectors>`."""
        return f"mean-{self.vectors.name}"

    @property
    def dim(self) -> int:
        """Length of each row: the word vectors' own."""
        return self.vectors.dim

    def recipe(self) -> dict[str, Any]:
        """Return what makes the rows; the vectors' identity is `vectors.sha256` beside it."""
        return {
            "name": self.name,
            "encoder": "mean",
            "tokenizer": TOKENIZER,
            "vectors": self.vectors.name,
            "oov": "ignored, also in the denominator; zero vector if no token is known",
            "dim": self.dim,
        }

    def encode(self, captions: Sequence[Caption]) -> npt.NDArray[np.float32]:
        """Encode captions.

        Parameters
        ----------
        captions : texts, or lists of tokens as `tokenize` gives them.

        Returns
        -------
        (captions, dim) float32
            Summed and divided in float64, so a caption's row is the same in any company.
        """
        rows = np.zeros((len(captions), self.dim), dtype=np.float32)
        for start in range(0, len(captions), _CHUNK):
            self._encode_into(rows[start : start + _CHUNK], captions[start : start + _CHUNK])
        return rows

    def report(self, captions: Sequence[Caption]) -> VocabularyReport:
        """Count what of `captions` is out of vocabulary."""
        known = self.vectors.index
        counts: Counter[str] = Counter()
        unknown = []
        for position, caption in enumerate(captions):
            tokens = _tokens(caption)
            counts.update(tokens)
            if not any(token in known for token in tokens):
                unknown.append(position)
        oov = [(word, count) for word, count in counts.items() if word not in known]
        return VocabularyReport(
            captions=len(captions),
            tokens=counts.total(),
            words=len(counts),
            oov_tokens=sum(count for _, count in oov),
            oov_words=tuple(sorted(oov, key=lambda item: (-item[1], item[0]))),
            unknown_captions=tuple(unknown),
        )

    def _encode_into(self, rows: npt.NDArray[np.float32], captions: Sequence[Caption]) -> None:
        index = self.vectors.index
        found = [[index[t] for t in _tokens(caption) if t in index] for caption in captions]
        counts = np.array([len(f) for f in found], dtype=np.int64)
        some = np.flatnonzero(counts)
        if not len(some):
            return
        words = self.vectors.matrix[[row for f in found for row in f]].astype(np.float64)
        # Only captions with a known word: reduceat does not give 0 for an empty segment.
        starts = np.concatenate(([0], np.cumsum(counts[some])[:-1]))
        sums = np.add.reduceat(words, starts, axis=0)
        rows[some] = sums / counts[some, None]


def _tokens(caption: Caption) -> Sequence[str]:
    return tokenize(caption) if isinstance(caption, str) else caption
