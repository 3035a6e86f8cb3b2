"""Bag of words and tf-idf: a caption as the counts of its words, bare or weighted."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from pipeline.text.encoders import VocabularyReport, report_on
from pipeline.text.lemmas import Lemmatizer
from pipeline.text.policies import TokenPolicy
from pipeline.text.vocabulary import Vocabulary


def tfidf_policy(lemmatizer: Lemmatizer) -> TokenPolicy:
    """Return the words of Wang et al. 2016's tf-idf: lemmas without stop words.

    Section 3.1 names WordNet's lemmatizer and no tokenizer or list of stop words; we take
    Treebank words and our own list, and look for stop words before lemmas are formed.
    """
    return TokenPolicy(
        f"lemmas-{lemmatizer.name}", stop_words="english-function", lemmatizer=lemmatizer
    )


@dataclass(frozen=True)
class BagOfWords:
    """How often each word of a vocabulary occurs in a caption.

    Dong et al. 2018 (Word2VisualVec), eq. (1): raw counts, not normalised. With the vocabulary
    rule "w2vv" (minimum count 5) and the policy "w2vv-filterstop" it is theirs, but for the list
    of stop words. A caption without a known word gets the zero vector.

    Raises
    ------
    VocabularyError
        The vocabulary was built with another policy.
    """

    vocabulary: Vocabulary
    policy: TokenPolicy

    def __post_init__(self) -> None:
        self.vocabulary.require_policy(self.policy)

    @property
    def name(self) -> str:
        """`bow-<vocabulary>`."""
        return f"bow-{self.vocabulary.name}"

    @property
    def dim(self) -> int:
        """Number of words of the vocabulary."""
        return len(self.vocabulary.words)

    @property
    def weights(self) -> tuple[str, str]:
        """The vocabulary."""
        return self.vocabulary.name, self.vocabulary.sha256

    def recipe(self) -> dict[str, Any]:
        """Return what makes the rows."""
        return {
            "name": self.name,
            "encoder": "bow",
            "tokens": self.policy.to_json(),
            "vocabulary": self.vocabulary.name,
            "oov": "not counted; zero vector if no token is known",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return counts, (texts, dim) float32, dimensions in the order of the vocabulary."""
        counts = _count(texts, self.policy, self.vocabulary)
        return counts.astype(np.float32).toarray()

    def report(self, texts: Sequence[str]) -> VocabularyReport:
        """Count which words are not in the vocabulary."""
        return _report(texts, self.policy, self.vocabulary)


@dataclass(frozen=True)
class TfIdf:
    """Counts of words, each weighted by how few training captions have it, at length 1.

    Row = c(w) (ln((1 + N) / (1 + n(w))) + 1), then divided by its L2 norm, where c(w) is the
    count of word w in the caption, N the number of training captions and n(w) how many of them
    have w; scikit-learn's `TfidfVectorizer` by default. Wang et al. 2016, section 3.1, uses
    "tf-idf-weighted bag-of-words vectors" and states no formula, so this one is our choice; with
    `tfidf_policy` and the vocabulary rules "wang-flickr30k" (3,000 words) and "wang-coco"
    (5,600) the rest is theirs as far as it is stated. A caption without a known word gets the
    zero vector.

    Raises
    ------
    VocabularyError
        The vocabulary was built with another policy.
    """

    vocabulary: Vocabulary
    policy: TokenPolicy

    def __post_init__(self) -> None:
        self.vocabulary.require_policy(self.policy)

    @property
    def name(self) -> str:
        """`tfidf-<vocabulary>`."""
        return f"tfidf-{self.vocabulary.name}"

    @property
    def dim(self) -> int:
        """Number of words of the vocabulary."""
        return len(self.vocabulary.words)

    @property
    def weights(self) -> tuple[str, str]:
        """The vocabulary, which holds the numbers of captions too."""
        return self.vocabulary.name, self.vocabulary.sha256

    @cached_property
    def idf(self) -> npt.NDArray[np.float64]:
        """Weight of each word, (dim,) float64, 1 or more."""
        captions = np.array(self.vocabulary.caption_counts, dtype=np.float64)
        return np.log((1 + self.vocabulary.captions) / (1 + captions)) + 1

    def recipe(self) -> dict[str, Any]:
        """Return what makes the rows."""
        return {
            "name": self.name,
            "encoder": "tfidf",
            "tokens": self.policy.to_json(),
            "vocabulary": self.vocabulary.name,
            "weighting": "count * (ln((1 + captions) / (1 + captions with the word)) + 1)",
            "norm": "l2",
            "oov": "not counted; zero vector if no token is known",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Encode captions.

        Returns
        -------
        (texts, dim) float32
            Dimensions in the order of the vocabulary; norms 1 or 0, computed in float64.
        """
        rows = _count(texts, self.policy, self.vocabulary)
        rows.data *= self.idf[rows.indices]
        norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        rows.data /= np.repeat(norms, np.diff(rows.indptr))
        return rows.astype(np.float32).toarray()

    def report(self, texts: Sequence[str]) -> VocabularyReport:
        """Count which words are not in the vocabulary."""
        return _report(texts, self.policy, self.vocabulary)


def _count(texts: Sequence[str], policy: TokenPolicy, vocabulary: Vocabulary) -> csr_matrix:
    """Return counts, sparse (texts, words) float64, the words of each row in order and once."""
    index = vocabulary.index
    found = [[index[t] for t in policy.tokenize(text) if t in index] for text in texts]
    ends = np.cumsum([0, *(len(places) for places in found)])
    places = np.array([place for row in found for place in row], dtype=np.int64)
    shape = (len(texts), len(vocabulary.words))
    counts = csr_matrix((np.ones(len(places)), places, ends), shape=shape)
    counts.sum_duplicates()
    return counts


def _report(texts: Sequence[str], policy: TokenPolicy, vocabulary: Vocabulary) -> VocabularyReport:
    return report_on([policy.tokenize(text) for text in texts], vocabulary.index)
