"""Bag of words and tf-idf: a caption as its word counts, raw or weighted."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from pipeline.store.errors import UnknownName
from pipeline.text.encoders.base import CaptionEncoder, Parts, VocabularyReport, report_on_texts
from pipeline.text.tokenizers.lemmas import Lemmatizer
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Weighting = Literal["counts", "tfidf"]
"""Weighting of a caption's word counts, see `BagOfWords`."""


def tfidf_tokenizer(lemmatizer: Lemmatizer) -> Tokenizer:
    """Return the tokenizer of Wang et al. 2016's tf-idf: lemmas without stop words.

    Section 3.1 names WordNet's lemmatizer, but no tokenizer or stop word list: Treebank words and
    our own list are our choice, and stop words are removed before lemmatization.
    """
    return Tokenizer(
        f"lemmas-{lemmatizer.name}", stop_words="english-function", lemmatizer=lemmatizer
    )


@dataclass(frozen=True)
class BagOfWords:
    """Counts of the vocabulary's words in a caption, raw or weighted; zeros without a known word.

    counts
        Dong et al. 2018 (Word2VisualVec), eq. (1): raw counts, not normalised. Theirs with the
        vocabulary rule "w2vv" and the tokenizer "w2vv-filterstop", but for our stop word list.
    tfidf
        c(w) (ln((1 + N) / (1 + n(w))) + 1), L2-normalised, with the count c(w) of word w in the
        caption, the number N of training captions and the number n(w) of those with w:
        scikit-learn's `TfidfVectorizer` by default. Wang et al. 2016, section 3.1, state no
        formula, so this one is our choice; the rest is theirs with `tfidf_tokenizer` and the rules
        "wang-flickr30k" (3,000 words) and "wang-coco" (5,600).
    """

    vocabulary: Vocabulary
    tokenizer: Tokenizer
    weighting: Weighting

    def __post_init__(self) -> None:
        self.vocabulary.require_tokenizer(self.tokenizer)
        if self.weighting not in get_args(Weighting):
            raise UnknownName(
                f"the weighting {self.weighting!r} is unknown; expected one of "
                f"{', '.join(get_args(Weighting))}"
            )

    @property
    def name(self) -> str:
        """`bow-<vocabulary>` or `tfidf-<vocabulary>`."""
        return f"{self._kind}-{self.vocabulary.name}"

    @property
    def dim(self) -> int:
        return len(self.vocabulary.words)

    @property
    def weights(self) -> tuple[str, str]:
        return self.vocabulary.name, self.vocabulary.sha256

    @cached_property
    def idf(self) -> npt.NDArray[np.float64]:
        """Weight of each word in "tfidf", (dim,) float64, 1 or more."""
        captions = np.array(self.vocabulary.caption_counts, dtype=np.float64)
        return np.log((1 + self.vocabulary.captions) / (1 + captions)) + 1

    @property
    def trained_on(self) -> tuple[str, ...]:
        return ()

    @property
    def memory(self) -> int:
        return 8 * self.dim

    def recipe(self) -> dict[str, Any]:
        idf = "count * (ln((1 + captions) / (1 + captions with the word)) + 1)"
        weighted = {"weighting": idf, "norm": "l2"} if self.weighting == "tfidf" else {}
        return {
            "name": self.name,
            "encoder": self._kind,
            "tokens": self.tokenizer.to_json(),
            "vocabulary": self.vocabulary.name,
            **weighted,
            "oov": "not counted; zero vector if no token is known",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32 in the vocabulary's order: exact counts, or norm 1 or 0."""
        rows = self._count(texts)
        if self.weighting == "tfidf":
            rows.data *= self.idf[rows.indices]
            norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
            rows.data /= np.repeat(norms, np.diff(rows.indptr))
        return rows.astype(np.float32).toarray()

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        return {self.name: report_on_texts(texts, self.tokenizer, self.vocabulary.index)}

    @property
    def _kind(self) -> str:
        return "bow" if self.weighting == "counts" else self.weighting

    def _count(self, texts: Sequence[str]) -> "csr_matrix":
        """Return counts, sparse (texts, dim) float64, with sorted unique indices per row."""
        # Imported here: scipy is slow to import, and encoders are imported together.
        from scipy.sparse import csr_matrix

        index, tokenize = self.vocabulary.index, self.tokenizer.tokenize
        positions = [[index[t] for t in tokenize(text) if t in index] for text in texts]
        ends = np.cumsum([0, *map(len, positions)])
        columns = np.array([column for row in positions for column in row], dtype=np.int64)
        shape = (len(texts), self.dim)
        counts = csr_matrix((np.ones(len(columns)), columns, ends), shape=shape)
        counts.sum_duplicates()
        return counts


def assemble(parts: Parts) -> CaptionEncoder:
    weighting: Literal["counts", "tfidf"] = "tfidf" if parts.option("kind") == "tfidf" else "counts"
    return BagOfWords(parts.vocabulary(), parts.tokenizer, weighting)
