"""The vocabulary of an encoder: words of the training captions, with counts."""

import re
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.store.errors import UnknownName
from pipeline.store.files import write_text
from pipeline.store.hashing import canonical_json, sha256_of_json
from pipeline.store.schema import SchemaError, convert_fields, decode_format
from pipeline.store.wording import counted
from pipeline.text import EncoderError, FittedFileError
from pipeline.text.tokenizers.tokenizer import Tokenizer

_FORMAT = "pipeline-vocabulary"
_FORMAT_VERSION = 1
_NUMBERED_RULE = re.compile(r"(min|top)-([1-9][0-9]*)")


@dataclass(frozen=True)
class VocabularyRule:
    """A rule that selects words by frequency."""

    name: str
    minimum_count: int = 1
    most_frequent: int | None = None  # maximum number of words; None: all

    def __post_init__(self) -> None:
        if self.minimum_count < 1 or (self.most_frequent is not None and self.most_frequent < 1):
            raise EncoderError(
                f"the vocabulary rule {self.name!r} has a minimum count of {self.minimum_count} "
                f"and a maximum of {self.most_frequent} words; expected 1 or more for both"
            )


VOCABULARY_RULES: dict[str, VocabularyRule] = {
    rule.name: rule
    for rule in (
        VocabularyRule("all"),
        VocabularyRule("vsepp", minimum_count=4),
        VocabularyRule("w2vv", minimum_count=5),
        VocabularyRule("wang-flickr30k", most_frequent=3000),
        VocabularyRule("wang-coco", most_frequent=5600),
    )
}
"""The rules of the papers.

all
    Every word, as in Kiros et al. 2014 and order-embeddings (Vendrov et al. 2016). Deviation:
    theirs includes the words of the validation captions, and loses its two rarest words by an
    off-by-two error.
vsepp
    VSE++ (Faghri et al. 2018). Deviation: theirs has the words of the training and validation
    captions, on Flickr of all splits.
w2vv
    Word2VisualVec (Dong et al. 2018), its `word_vocab_5.txt`.
wang-flickr30k, wang-coco
    The dictionary sizes of Wang et al. 2016, section 3.1. The selection is not stated; we choose
    the most frequent words. Captions with fewer words have a smaller vocabulary.
"""


def vocabulary_rule(name: str) -> VocabularyRule:
    """Return a rule of `VOCABULARY_RULES`, or "min-N" (N occurrences or more), or "top-N"."""
    if name in VOCABULARY_RULES:
        return VOCABULARY_RULES[name]
    if (numbered := _NUMBERED_RULE.fullmatch(name)) is None:
        raise UnknownName(
            f"the vocabulary rule {name!r} is unknown; expected {', '.join(VOCABULARY_RULES)}, "
            "min-N (words with N occurrences or more) or top-N (the N most frequent)"
        )
    number = int(numbered[2])
    if numbered[1] == "min":
        return VocabularyRule(name, minimum_count=number)
    return VocabularyRule(name, most_frequent=number)


@dataclass(frozen=True)
class Vocabulary:
    """Words by descending frequency, then by code points."""

    words: tuple[str, ...]  # distinct
    counts: tuple[int, ...]  # occurrences of each word in the captions
    caption_counts: tuple[int, ...]  # captions with each word
    captions: int
    rule: VocabularyRule  # with its effective minimum count: 1 if no word reaches the requested one
    tokenizer: dict[str, Any]  # `Tokenizer.to_json()`

    @property
    def name(self) -> str:
        """`<tokenizer>-<rule>-<number of words>`."""
        return f"{self.tokenizer['name']}-{self.rule.name}-{len(self.words)}"

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each word in `words`."""
        return {word: position for position, word in enumerate(self.words)}

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of `to_json`."""
        return sha256_of_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "format_version": _FORMAT_VERSION,
            "words": list(self.words),
            "counts": list(self.counts),
            "caption_counts": list(self.caption_counts),
            "captions": self.captions,
            "rule": vars(self.rule),
            "policy": self.tokenizer,
        }

    def require_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Check that the vocabulary was built with this tokenizer."""
        steps = tokenizer.to_json()
        different = [key for key in steps if steps[key] != self.tokenizer.get(key)]
        if different:
            raise FittedFileError(
                f"the vocabulary {self.name} was built with the tokenizer "
                f"{self.tokenizer['name']!r}, not with {tokenizer.name!r}; they differ in "
                f"{', '.join(different)}; build it again with that tokenizer, or use its own"
            )


def build_vocabulary(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    rule: VocabularyRule,
    selectable: Container[str] | None = None,
) -> Vocabulary:
    """Count the words of captions of the training split, and select them by a rule.

    Only words in `selectable`, such as those with a vector, may be selected; None: all.
    """
    counts: Counter[str] = Counter()
    caption_counts: Counter[str] = Counter()
    for text in texts:
        tokens = tokenizer.tokenize(text)
        counts.update(tokens)
        caption_counts.update(set(tokens))
    allowed = (item for item in counts.items() if selectable is None or item[0] in selectable)
    ordered = sorted(allowed, key=lambda item: (-item[1], item[0]))
    if not ordered:
        without = "" if selectable is None else ", none of which has a word vector"
        raise EncoderError(
            f"no word is left for a vocabulary: {len(texts)} training captions have {len(counts)} "
            f"words by the tokenizer {tokenizer.name!r}{without}, and 1 is needed; add captions to "
            "the training split, or choose a tokenizer that removes fewer words"
        )
    # The rule is meant for many captions, while a few captions have only rare words: then all.
    if ordered[0][1] < rule.minimum_count:
        rule = replace(rule, minimum_count=1)
    selected = [item for item in ordered if item[1] >= rule.minimum_count][: rule.most_frequent]
    return Vocabulary(
        words=tuple(word for word, _ in selected),
        counts=tuple(count for _, count in selected),
        caption_counts=tuple(caption_counts[word] for word, _ in selected),
        captions=len(texts),
        rule=rule,
        tokenizer=tokenizer.to_json(),
    )


def fit_vocabulary(
    path: Path,
    rule: VocabularyRule,
    tokenizer: Tokenizer,
    captions: Sequence[str],
    log: Callable[[str], None],
    selectable: Container[str] | None = None,
) -> None:
    """Build a vocabulary as `build_vocabulary` and save it."""
    vocabulary = build_vocabulary(captions, tokenizer, rule, selectable)
    if vocabulary.rule != rule:
        log(
            f"vocabulary {rule.name!r}: all {len(vocabulary.words)} words, since none of them "
            f"occurs {rule.minimum_count} times in {counted(len(captions), 'caption')}"
        )
    save_vocabulary(vocabulary, path)


def save_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write a vocabulary as JSON atomically; equal vocabularies have equal bytes."""
    value = {**vocabulary.to_json(), "sha256": vocabulary.sha256}
    write_text(path, canonical_json(value) + "\n")


def load_vocabulary(path: Path) -> Vocabulary:
    """Load a vocabulary that `save_vocabulary` wrote."""
    try:
        value = decode_format(path.read_bytes(), dict[str, Any], _FORMAT, _FORMAT_VERSION)
        value["tokenizer"] = value.pop("policy", None)
        values = convert_fields(value, Vocabulary, sha256=str)
    except OSError as error:
        raise FittedFileError(
            f"{path} cannot be read ({error.strerror}); build the vocabulary first"
        ) from error
    except EncoderError as error:  # an invalid rule
        raise FittedFileError(*error.args) from error
    except SchemaError as error:
        raise FittedFileError(
            f"{path} is damaged or of another kind ({error}); build the vocabulary again"
        ) from error
    stated = values.pop("sha256")
    vocabulary = Vocabulary(**values)
    if vocabulary.sha256 != stated:
        raise FittedFileError(
            f"{path}: its content does not match the SHA-256 that it states, {stated}; it was "
            "modified or damaged: build the vocabulary again"
        )
    return vocabulary
