"""Lemmatization: Morphy's detachment of suffixes, by rules alone or with WordNet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.tokenizers.word_lists import IRREGULAR_WORDS

_NOUN_SUFFIXES = (
    ("s", ""),
    ("ses", "s"),
    ("ves", "f"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
)
_OTHER_SUFFIXES = (  # for verbs, "fe" for nouns; "es" for verbs only where spelling requires it
    ("ves", "fe"),
    ("oes", "o"),
    ("ied", "y"),
    ("ied", "ie"),
    ("ed", "e"),
    ("ed", ""),
    ("ing", "e"),
    ("ing", ""),
)
_VOWELS = frozenset("aeiou")
_SHORTEST_LEMMA = 3
_RULES_VERSION = 1  # of `RuleLemmatizer`; increase it when a lemma changes


class Lemmatizer(Protocol):
    """Maps single words, without context, to their dictionary forms."""

    @property
    def name(self) -> str:
        """Name of rules and dictionary, such as "rules-glove-6b-50d"."""

    @property
    def sha256(self) -> str:
        """SHA-256 of dictionary, exceptions and rules."""

    def lemma(self, word: str) -> str:
        """Return the lemma of a lower-case word; an unknown word is its own lemma."""


@dataclass(frozen=True, eq=False)
class RuleLemmatizer:
    """Morphy's suffix rules with a word list by frequency in place of WordNet.

    Exceptions (`IRREGULAR_WORDS`) have priority. Otherwise every suffix of nouns and of verbs is
    detached, and the most frequent known form is the lemma. Rules beyond Morphy's, which has
    exception lists for them: doubled consonants ("running"), and stems that lost an "e"
    ("staring", where "star" would become "starring").

    Deviations from WordNet's lemmatizer: no parts of speech, so "climbing" is always "climb";
    known words need not be lemmas, so a rare word may lose an "s" of its own.
    """

    dictionary: str  # name of the word list
    # Known lower-case words, most frequent first. About 50,000 work well: much longer lists contain
    # misspellings and names ("gras", "morn") that pass for lemmas.
    words: Sequence[str] = field(repr=False)
    _lemmas: dict[str, str] = field(init=False, repr=False, default_factory=dict)

    @property
    def name(self) -> str:
        """`rules-<dictionary>`."""
        return f"rules-{self.dictionary}"

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of rules, exceptions and words."""
        rules = [_RULES_VERSION, _NOUN_SUFFIXES, _OTHER_SUFFIXES, IRREGULAR_WORDS]
        return sha256_of_json([*rules, list(self.words)])

    @cached_property
    def _rank(self) -> dict[str, int]:
        return {word: position for position, word in reversed(list(enumerate(self.words)))}

    def lemma(self, word: str) -> str:
        return _remembered(self._lemmas, word, self._find)

    def _find(self, word: str) -> str:
        if word in IRREGULAR_WORDS:
            return IRREGULAR_WORDS[word]
        forms = [form for form in _forms(word) if form in self._rank]
        return min(forms, key=self._rank.__getitem__, default=word)


@dataclass(frozen=True, eq=False)
class WordNetLemmatizer:
    """WordNet's lemmatizer for nouns, from the user's WordNet files.

    Equivalent to nltk's `WordNetLemmatizer().lemmatize(word)`, our reading of "WordNet's
    lemmatizer" in Wang et al. 2016, section 3.1: the paper cites nltk and states no parts of
    speech, and nltk then treats every word as a noun ("running" is unchanged).
    """

    nouns: frozenset[str] = field(repr=False)
    exceptions: dict[str, tuple[str, ...]] = field(repr=False)  # lemmas of irregular nouns
    sha256: str  # of the canonical JSON `{file name: SHA-256}` of the two files
    _lemmas: dict[str, str] = field(init=False, repr=False, default_factory=dict)

    @property
    def name(self) -> str:
        """`wordnet-noun`."""
        return "wordnet-noun"

    def lemma(self, word: str) -> str:
        return _remembered(self._lemmas, word, self._find)

    def _find(self, word: str) -> str:
        forms = self.exceptions.get(word) or [
            word.removesuffix(old) + new for old, new in _NOUN_SUFFIXES if word.endswith(old)
        ]
        lemmas = [form for form in (word, *forms) if form in self.nouns]
        return min(lemmas, key=len, default=word)


def load_wordnet(folder: Path) -> WordNetLemmatizer:
    """Load the nouns of a WordNet from `index.noun` and `noun.exc` in a folder.

    nltk's own reader needs files that packages of WordNet leave out, and a folder below
    `nltk.data.path`.
    """
    index, exceptions = folder / "index.noun", folder / "noun.exc"
    # Lines of the licence start with two spaces.
    nouns = frozenset(
        line.split(" ", 1)[0] for line in _lines(index) if line and not line.startswith("  ")
    )
    irregular: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(_lines(exceptions), 1):
        word, *lemmas = line.split() or [""]
        if word and not lemmas:
            raise EncoderError(
                f"{exceptions}, line {number}: found {line[:40]!r}, expected a word and its "
                "lemmas; is this WordNet's file?"
            )
        irregular[word] = (*irregular.get(word, ()), *lemmas)
    if not nouns:
        raise EncoderError(f"{index} has no nouns; is this WordNet's file?")
    files = {path.name: sha256_of_file(path) for path in (index, exceptions)}
    return WordNetLemmatizer(nouns, irregular, sha256_of_json(files))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EncoderError(
            f"{path} cannot be read ({error.strerror}); pass the folder of a WordNet, with "
            "index.noun and noun.exc"
        ) from error
    except UnicodeDecodeError as error:
        raise EncoderError(f"{path} is not UTF-8; is this WordNet's file?") from error


def _remembered(lemmas: dict[str, str], word: str, find: Callable[[str], str]) -> str:
    lemma = lemmas.get(word)
    if lemma is None:
        lemma = lemmas[word] = find(word)
    return lemma


def _forms(word: str) -> list[str]:
    """Return the possible base forms of a word by spelling rules, if any."""
    if word.endswith(("ss", "us", "is", "eed")):
        return []
    forms = []
    for old, new in _NOUN_SUFFIXES + _OTHER_SUFFIXES:
        if not word.endswith(old):
            continue
        stem = word.removesuffix(old)
        if old in ("ed", "ing"):
            if not any(letter in _VOWELS or letter == "y" for letter in stem):
                continue
            if new == "" and _had_an_e(stem):
                continue
            if new == "" and stem[-1] == stem[-2] and stem[-1] not in _VOWELS:
                forms.append(stem[:-1])
        forms.append(stem + new)
    return [form for form in forms if len(form) >= _SHORTEST_LEMMA]


def _had_an_e(stem: str) -> bool:
    """Return whether a stem before "ed" or "ing" lost an "e", by its single last consonant."""
    # A stem with one vowel between consonants would otherwise double the last one: "stare" becomes
    # "staring", "star" becomes "starring".
    if len(stem) < _SHORTEST_LEMMA:
        return True
    start, vowel, last = stem[:-2], stem[-2], stem[-1]
    return (
        vowel in _VOWELS
        and last not in _VOWELS
        and last not in "wxy"
        and not any(letter in _VOWELS for letter in start)
    )
