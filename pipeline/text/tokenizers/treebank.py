"""Penn Treebank words, as nltk's `NLTKWordTokenizer` splits them.

The rules are those of nltk (Apache License 2.0), which has them from R. MacIntyre's sed script of
the Treebank project. They stand here since importing nltk takes seconds; the tests compare.
"""

import re
from functools import cache
from typing import Any

RULES = "nltk 3.10.4"
"""The version whose words these are."""

# nltk sets a full stop apart only at the very end of its text and leaves the rest to a sentence
# splitter that needs a download. Without this rule, the "dog." of "A dog. A cat." is no known
# word. Two characters before the stop, so that "u.s. army" keeps its abbreviation.
_INNER_STOP = re.compile(r"(?<=\w\w)\.(?=\s)")
_LAST_STOP = re.compile(r"(?<=[A-Za-z0-9])\.\s*\Z")
_CONTRACTION = r"(?!.*\b(?:cannot|gimme|gonna|gotta|lemme|wanna)\b)"
_PLAIN_WORD = re.compile(_CONTRACTION + r"[a-z0-9]+(?:-[a-z0-9]+)*|[.,]", re.ASCII | re.IGNORECASE)

# Patterns and what each match becomes, in this order; `_ENDING_QUOTES` once spaces are around all.
_MARKS = (
    (r"[«“‘„]|`+", r" \g<0> "),
    (r'^"', r"``"),
    (r"``", r" `` "),
    (r"([ (\[{<])(?:\"|'')", r"\1 `` "),
    (r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"' "),
    (r"([^.])(\.)([\])}>\"'»”’ ]*+)\s*$", r"\1 \2 \3 "),  # the last full stop
    (r"([:,])(\D)", r" \1 \2"),
    (r"[:,]$", r" \g<0> "),
    (r"\.{2,}", r" \g<0> "),
    (r"[;@#$%&]", r" \g<0> "),
    (r"[\u2012-\u2015]", r" \g<0> "),
    (r"([^.])(\.)([\])}>\"']*)\s*$", r"\1 \2\3 "),
    (r"[?!]", r" \g<0> "),
    (r"([^'])' ", r"\1 ' "),
    (r"\*", r" \g<0> "),
    (r"[\]\[(){}<>]", r" \g<0> "),
    (r"--", r" -- "),
)
_ENDING_QUOTES = (
    (r"[»”’]", r" \g<0> "),
    (r"''", r" '' "),
    (r'"', r" '' "),
    (r"\s+", r" "),
    (r"([^' ])('[sS]|'[mM]|'[dD]|') ", r"\1 \2 "),
    (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
)
_CONTRACTIONS = tuple(
    re.compile(rf"(?i){pattern}")
    for pattern in (
        r"\b(can)(not)\b",
        r"\b(d)('ye)\b",
        r"\b(gim)(me)\b",
        r"\b(gon)(na)\b",
        r"\b(got)(ta)\b",
        r"\b(lem)(me)\b",
        r"\b(more)('n)\b",
        r"\b(wan)(na)(?=\s)",
        r" ('t)(is)\b",
        r" ('t)(was)\b",
    )
)


def treebank_words(text: str) -> list[str]:
    """Split a caption; a full stop between two of its sentences is a word too.

    "A dog's ball. It isn't red" gives "A", "dog", "'s", "ball", ".", "It", "is", "n't", "red".
    """
    text = _INNER_STOP.sub(" .", text)
    # Most captions have only words and stops, and the rules take many times as long.
    words = _LAST_STOP.sub(" .", text.replace(", ", " , ")).split()
    return words if all(map(_PLAIN_WORD.fullmatch, words)) else nltk_words(text)


def nltk_words(text: str) -> list[str]:
    """Split one sentence as `nltk.tokenize.NLTKWordTokenizer().tokenize(text)` does."""
    marks, ending_quotes = _compiled()
    for pattern, replacement in marks:
        text = pattern.sub(replacement, text)
    text = f" {text} "
    for pattern, replacement in ending_quotes:
        text = pattern.sub(replacement, text)
    for pattern in _CONTRACTIONS:
        text = pattern.sub(r" \1 \2 ", text)
    return text.split()


@cache
def _compiled() -> list[list[tuple[Any, str]]]:
    # Compiled by `regex` as in nltk: it and `re` differ in which of Unicode's characters are
    # letters and spaces. Only here, since most captions need no rules.
    import regex

    return [
        [(regex.compile(pattern), replacement) for pattern, replacement in rules]
        for rules in (_MARKS, _ENDING_QUOTES)
    ]
