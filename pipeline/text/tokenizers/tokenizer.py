"""Tokenizers: how a caption becomes words, and the tokenizers that the papers used by name."""

import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from pipeline.errors import PipelineError
from pipeline.text.tokenizers.lemmas import Lemmatizer
from pipeline.text.tokenizers.stop_words import STOP_WORDS, stop_words_sha256
from pipeline.text.tokenizers.treebank import treebank_words

_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_KLEIN_MARKS = re.compile(r'[\s.,;:?!"&()\[\]{}<>=/\\]')


class TokenizerError(PipelineError):
    """A tokenizer is made of an unknown splitter or list, or cuts captions to nothing."""


@dataclass(frozen=True)
class Splitter:
    """One way of splitting text into words.

    Attributes
    ----------
    rule : what it does in words, for recipes: a change to one is a change to the other.
    split : text to words.
    """

    rule: str
    split: Callable[[str], list[str]]


SPLITTERS: dict[str, Splitter] = {
    "treebank": Splitter(
        "full stop after a word inside the caption set apart, nltk treebank words",
        treebank_words,
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
    """How a caption becomes words; the steps are done in the order of the attributes.

    Text is brought to Unicode NFC first.

    Attributes
    ----------
    name : of the tokenizer, for names of encoders and for messages.
    lower_case : whether text is lower-cased.
    splitter : a name in `SPLITTERS`.
    punctuation : whether tokens without a letter or digit are "dropped" or "kept".
    stop_words : name in `STOP_WORDS` of the words to remove; None removes none.
    lemmatizer : what puts each word in its dictionary form; None leaves words as they are. Stop
        words are looked for before, not again after.
    max_length : the words beyond this number are cut off; None cuts nothing off.

    Raises
    ------
    TokenizerError
        The splitter or the list of stop words is unknown, or the maximum length is below 1.
    """

    name: str
    lower_case: bool = True
    splitter: str = "treebank"
    punctuation: Literal["dropped", "kept"] = "dropped"
    stop_words: str | None = None
    lemmatizer: Lemmatizer | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        _require("splitter", self.splitter, SPLITTERS)
        _require("punctuation", self.punctuation, ("dropped", "kept"))
        if self.stop_words is not None:
            _require("list of stop words", self.stop_words, STOP_WORDS)
        if self.max_length is not None and self.max_length < 1:
            raise TokenizerError(
                f"the maximum length of a caption is {self.max_length}; give 1 word or more, or "
                "None to cut nothing off"
            )

    def tokenize(self, text: str) -> list[str]:
        """Return the words of one caption, in order, repeats kept; perhaps none."""
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
        """Return everything that decides the words, as JSON values; lists by their SHA-256."""
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


def _require(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise TokenizerError(
            f"no {what} is known as {name!r}; there are {', '.join(sorted(known))}"
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
    Penn Treebank words in lower case without punctuation: "don't" gives "do", "n't"; hyphens do
    not split. Deviation from `nltk.word_tokenize`, which needs downloaded data: sentences inside
    a caption are found by a rule, so "mr. smith" gives "mr", "smith".
vsepp
    VSE++ (Faghri et al. 2018): the same with the punctuation kept as words of its own.
w2vv, w2vv-filterstop
    Word2VisualVec (Dong et al. 2018): letters and digits of ASCII alone; with stop words for its
    bag of words and its mean of word2vec. Deviation: the stop words are our own list.
klein
    Klein et al. 2015, case-sensitive. Deviation: of what their program does next to words without
    a vector (substitutions, misspellings, British to American, cutting at hyphens and digits)
    nothing is done, as it rests on their hand-made lists.
whitespace
    For text that is tokenised already, as Flickr8k's token file is.
kiros
    Kiros et al. 2014 and order-embeddings (Vendrov et al. 2016): `whitespace`. Deviation: their
    programs do not lower-case, since their files were prepared.
"""


def tokenizer_called(name: str) -> Tokenizer:
    """Return a tokenizer of `TOKENIZERS`.

    Raises
    ------
    TokenizerError
    """
    _require("tokenizer", name, TOKENIZERS)
    return TOKENIZERS[name]
