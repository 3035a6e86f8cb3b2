"""Tokenizers by name, with that of tf-idf, which needs a lemmatizer."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pipeline.text.tokenizers.lemmas import Lemmatizer, RuleLemmatizer, load_wordnet
from pipeline.text.tokenizers.tokenizer import Tokenizer, tokenizer_called
from pipeline.text.vectors import GLOVE_PACKAGE, load_vectors

LEMMAS = "lemmas"
"""The tokenizer of tf-idf: lemmas of Treebank words without stop words."""

_LEMMA_WORDS = 50_000  # most frequent words of GloVe; see `RuleLemmatizer`


def find_tokenizer(name: str, wordnet: str | None = None) -> Tokenizer:
    """Return a tokenizer of `TOKENIZERS`, or `LEMMAS` by rules or by the WordNet of a folder."""
    if name != LEMMAS:
        return tokenizer_called(name)
    return tfidf_tokenizer(_rules() if wordnet is None else load_wordnet(Path(wordnet)))


def tfidf_tokenizer(lemmatizer: Lemmatizer) -> Tokenizer:
    """Return the tokenizer of Wang et al. 2016's tf-idf: lemmas without stop words.

    Section 3.1 names WordNet's lemmatizer, but no tokenizer or stop word list: Treebank words and
    our own list are our choice, and stop words are removed before lemmatization.
    """
    return Tokenizer(
        f"lemmas-{lemmatizer.name}", stop_words="english-function", lemmatizer=lemmatizer
    )


def words_in(texts: Iterable[str], tokenizer: Tokenizer) -> set[str]:
    """Return the distinct words of some texts."""
    return {word for text in texts for word in tokenizer.tokenize(text)}


@cache
def _rules() -> Lemmatizer:
    return RuleLemmatizer(GLOVE_PACKAGE, load_vectors(GLOVE_PACKAGE).words[:_LEMMA_WORDS])
