"""Tokenizers: their steps, and the tokenizers of the papers by name."""

import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from pipeline.store.errors import UnknownName
from pipeline.text import EncoderError
from pipeline.text.tokenizers.lemmas import Lemmatizer
from pipeline.text.tokenizers.treebank import treebank_words
from pipeline.text.tokenizers.word_lists import STOP_WORDS, stop_words_sha256

_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_KLEIN_MARKS = re.compile(r'[\s.,;:?!"&()\[\]{}<>=/\\]')


@dataclass(frozen=True)
class Splitter:
    """A word splitter."""

    rule: str  # the computation in words, for recipes; change both together
    split: Callable[[str], list[str]]


SPLITTERS: dict[str, Splitter] = {
    "treebank": Splitter(
        "full stop after a word inside the caption set apart, nltk treebank words", treebank_words
    ),
    "alphanumeric": Splitter(
        "every character but A-Z, a-z and 0-9 to a space, split at spaces",
        lambda text: _NOT_ALPHANUMERIC.sub(" ", text).split(),
    ),
    "marks": Splitter(
        r'split at white space and at . , ; : ? ! " & ( ) [ ] { } < > = / \ ',
        lambda text: _KLEIN_MARKS.sub(" ", text).split(),
    ),
    "whitespace": Splitter("split at white space", str.split),
}
"""Every splitter by name. White space is Unicode's."""


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer of text in Unicode NFC; its steps run in the order of the fields."""

    name: str  # for names of encoders and messages
    lower_case: bool = True
    splitter: str = "treebank"  # in `SPLITTERS`
    punctuation: Literal["dropped", "kept"] = "dropped"  # tokens without a letter or digit
    stop_words: str | None = None  # in `STOP_WORDS`, words to remove
    lemmatizer: Lemmatizer | None = None
    max_length: int | None = None  # in words: longer captions are truncated

    def __post_init__(self) -> None:
        _require("splitter", self.splitter, SPLITTERS)
        _require("punctuation", self.punctuation, ("dropped", "kept"))
        if self.stop_words is not None:
            _require("list of stop words", self.stop_words, STOP_WORDS)
        if self.max_length is not None and self.max_length < 1:
            raise EncoderError(
                f"the maximum length of a caption is {self.max_length}; set 1 word or more, or "
                "None for no limit"
            )

    def tokenize(self, text: str) -> list[str]:
        """Return the words of one caption, in order, with repetitions; possibly none."""
        # The form of word lists and vectors: a decomposed accent would make another word.
        text = unicodedata.normalize("NFC", text)
        words = SPLITTERS[self.splitter].split(text.lower() if self.lower_case else text)
        if self.punctuation == "dropped":
            words = [word for word in words if word.isalnum() or any(map(str.isalnum, word))]
        if self.stop_words is not None:
            stop = STOP_WORDS[self.stop_words]
            words = [word for word in words if word not in stop]
        if self.lemmatizer is not None:
            words = [self.lemmatizer.lemma(word) for word in words]
        return words[: self.max_length]

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines the words, as JSON values; lists by their SHA-256."""
        stop, lemmas = self.stop_words, self.lemmatizer
        return {
            "name": self.name,
            "unicode": "NFC",
            "lower_case": self.lower_case,
            "splitter": {"name": self.splitter, "rule": SPLITTERS[self.splitter].rule},
            "punctuation": self.punctuation,
            "stop_words": stop and {"name": stop, "sha256": stop_words_sha256(stop)},
            "lemmatizer": lemmas and {"name": lemmas.name, "sha256": lemmas.sha256},
            "max_length": self.max_length,
        }


def _require(what: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise UnknownName(
            f"the {what} {name!r} is unknown; expected one of {', '.join(sorted(names))}"
        )


_WHITESPACE = Tokenizer("whitespace", splitter="whitespace", punctuation="kept")
_W2VV = Tokenizer("w2vv", splitter="alphanumeric")

TOKENIZERS: dict[str, Tokenizer] = {
    tokenizer.name: tokenizer
    for tokenizer in (
        Tokenizer("treebank"),
        Tokenizer("vsepp", punctuation="kept"),
        _W2VV,
        replace(_W2VV, name="w2vv-filterstop", stop_words="english-function"),
        Tokenizer("klein", lower_case=False, splitter="marks", punctuation="kept"),
        _WHITESPACE,
        replace(_WHITESPACE, name="kiros"),
    )
}
"""The tokenizers by name; `treebank` is the default.

treebank
    Penn Treebank words in lower case without punctuation: "don't" becomes "do", "n't"; hyphens do
    not split. Deviation from `nltk.word_tokenize`, which needs downloaded data: a rule splits
    sentences within a caption, so "mr. smith" becomes "mr", "smith".
vsepp
    VSE++ (Faghri et al. 2018): the same, with punctuation as separate words.
w2vv, w2vv-filterstop
    Word2VisualVec (Dong et al. 2018): ASCII letters and digits only; the second without stop
    words, for its bag of words and mean of word2vec. Deviation: our own stop word list.
klein
    Klein et al. 2015, case-sensitive. Deviation: without their program's hand-made rules for words
    without a vector (substitutions, misspellings, British to American, splitting at hyphens and
    digits).
whitespace
    For tokenised text, such as Flickr8k's token file.
kiros
    Kiros et al. 2014 and order-embeddings (Vendrov et al. 2016): `whitespace`. Deviation: their
    programs do not lower-case, since their files were prepared.
"""


def tokenizer_called(name: str) -> Tokenizer:
    """Return a tokenizer of `TOKENIZERS`."""
    _require("tokenizer", name, TOKENIZERS)
    return TOKENIZERS[name]
