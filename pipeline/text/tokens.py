"""One caption to its tokens: the single tokenizer that every text encoder shares."""

import re
import unicodedata

from nltk.tokenize import NLTKWordTokenizer

TOKENIZER = (
    "NFC, lower case, full stop after a word inside the caption set apart, "
    "nltk treebank words, tokens without a letter or digit dropped"
)
"""The policy of `tokenize` in words, for recipes: a change to one is a change to the other."""

# nltk sets a full stop apart only at the very end of its text and leaves the rest to a sentence
# splitter that needs a download. Without this rule, the "dog." of "A dog. A cat." is no known
# word. Two characters before the stop, so that "u.s. army" keeps its abbreviation.
_INNER_STOP = re.compile(r"(?<=\w\w)\.(?=\s)")
_TREEBANK = NLTKWordTokenizer()


def tokenize(text: str) -> list[str]:
    """Return the tokens of one caption, in order, repeats kept; perhaps none.

    The text is NFC-normalised and lower-cased, then split by nltk's `NLTKWordTokenizer` (Penn
    Treebank rules: "don't" gives "do", "n't"; hyphens do not split). Tokens without a letter or
    digit, that is punctuation, are dropped.

    Deviation from `nltk.word_tokenize`, which needs downloaded data: sentences inside a caption
    are found by a rule, so "mr. smith" gives "mr", "smith".
    """
    lowered = unicodedata.normalize("NFC", text).lower()
    tokens = _TREEBANK.tokenize(_INNER_STOP.sub(" .", lowered))
    return [token for token in tokens if any(c.isalnum() for c in token)]
