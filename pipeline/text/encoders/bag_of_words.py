"""Bag of words and tf-idf: a caption as its word counts, raw or weighted."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from pipeline.store.errors import UnknownName
from pipeline.text.encoders.base import Encoder, Fitting, VocabularyReport, Words, report_on_texts
from pipeline.text.encoders.options import WordOptions, tokenizer_option, vocabulary_option
from pipeline.text.tokenizers.by_name import LEMMAS
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vocabulary import Vocabulary, fit_vocabulary, load_vocabulary, vocabulary_rule

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Weighting = Literal["counts", "tfidf"]
"""Weighting of a caption's word counts, see `BagOfWords`."""


@dataclass(frozen=True)
class BagOfWordsOptions(WordOptions):
    """Options of `BagOfWords`; the kind "tfidf" has its weighting."""

    tokenizer: str = tokenizer_option("w2vv-filterstop")
    vocabulary: str = vocabulary_option("w2vv")


class BagOfWords(Encoder):
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

    Options: ClassVar = BagOfWordsOptions
    presets: ClassVar = (
        BagOfWordsOptions("bow", "bow"),
        BagOfWordsOptions("tfidf", "tfidf", tokenizer=LEMMAS, vocabulary="wang-flickr30k"),
        BagOfWordsOptions("tfidf-coco", "tfidf", tokenizer=LEMMAS, vocabulary="wang-coco"),
    )

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer, weighting: Weighting) -> None:
        """Store the parts; the name is `bow-<vocabulary>` or `tfidf-<vocabulary>`."""
        vocabulary.require_tokenizer(tokenizer)
        if weighting not in get_args(Weighting):
            raise UnknownName(
                f"the weighting {weighting!r} is unknown; expected one of "
                f"{', '.join(get_args(Weighting))}"
            )
        self.vocabulary, self.tokenizer, self.weighting = vocabulary, tokenizer, weighting
        self._kind = "bow" if weighting == "counts" else weighting
        self.name = f"{self._kind}-{vocabulary.name}"
        self.dim = len(vocabulary.words)
        self.weights = vocabulary.name, vocabulary.sha256
        self.memory = 8 * self.dim

    @classmethod
    def fit(cls, options: BagOfWordsOptions, folder: Path, fitting: Fitting, words: Words) -> Self:
        if not (path := folder / options.vocabulary_file).exists():
            rule = vocabulary_rule(options.vocabulary)
            fit_vocabulary(path, rule, options.words, fitting.training, fitting.monitor.log)
        return cls.load(options, folder, words)

    @classmethod
    def load(cls, options: BagOfWordsOptions, folder: Path, words: Words) -> Self:
        vocabulary = load_vocabulary(folder / options.vocabulary_file)
        return cls(vocabulary, options.words, "tfidf" if options.kind == "tfidf" else "counts")

    @cached_property
    def idf(self) -> npt.NDArray[np.float64]:
        """Weight of each word in "tfidf", (dim,) float64, 1 or more."""
        captions = np.array(self.vocabulary.caption_counts, dtype=np.float64)
        return np.log((1 + self.vocabulary.captions) / (1 + captions)) + 1

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
