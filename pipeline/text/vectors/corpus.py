"""The corpus of sentences to train word vectors on, with counts and a check for leaks."""

import hashlib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline.text.vectors.table import VectorsError


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokenized sentences.

    Attributes
    ----------
    sentences : sequence of sequence of str. Tokens of each sentence, in training order; some may be
        empty.
    """

    sentences: Sequence[Sequence[str]]

    @cached_property
    def counts(self) -> Counter[str]:
        """Number of occurrences of each word."""
        return Counter(token for sentence in self.sentences for token in sentence)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the sentences: tokens joined by spaces, a `\\n` after each sentence."""
        digest = hashlib.sha256()
        for sentence in self.sentences:
            digest.update(" ".join(sentence).encode() + b"\n")
        return digest.hexdigest()

    def vocabulary(self, min_count: int) -> list[str]:
        """Return the words with `min_count` occurrences or more."""
        return [word for word, count in self.counts.items() if count >= min_count]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a corpus file, one sentence each, including blank ones.

    Raises
    ------
    VectorsError
        The file is missing, or a line is not UTF-8.
    """
    if not path.is_file():
        raise VectorsError(f"{path}: no such corpus; expected a text file, one sentence per line")
    lines = []
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            try:
                lines.append(raw.rstrip(b"\r\n").decode())
            except UnicodeDecodeError as error:
                raise VectorsError(
                    f"{path}, line {number}: is not UTF-8 ({error.reason}); convert the file"
                ) from error
    return lines


def leaks(
    corpus_sentences: Iterable[str], held_out_captions: Mapping[str, str]
) -> list[tuple[int, str]]:
    """Return which sentences are held-out captions, ignoring case and tokenization.

    Texts are compared by their sequence of letters and digits (NFKC, case-folded): "A dog's ball."
    equals "a dog 's ball". A text without any is ignored. Only whole sentences are compared, so a
    line with two captions is not found.

    Parameters
    ----------
    corpus_sentences : iterable of str. Sentences, raw or as tokens joined by spaces.
    held_out_captions : mapping of str to str. Text by caption id.

    Returns
    -------
    list of (line, caption id)
        Lines count from 1; one entry for every caption that a line equals.
    """
    ids: dict[str, list[str]] = defaultdict(list)
    for caption_id, caption in held_out_captions.items():
        ids[_normal(caption)].append(caption_id)
    ids.pop("", None)
    return [
        (line, caption_id)
        for line, sentence in enumerate(corpus_sentences, 1)
        for caption_id in ids.get(_normal(sentence), ())
    ]


def refuse_leaks(path: Path, found: Sequence[tuple[int, str]]) -> None:
    """Raise if held-out captions were found in a corpus file.

    Raises
    ------
    VectorsError
        `found` is not empty; the first lines and caption ids are named.
    """
    if found:
        first = "; ".join(f"line {line} is {caption_id}" for line, caption_id in found[:5])
        raise VectorsError(
            f"{path}: {len({line for line, _ in found})} lines are held-out captions, expected "
            f"none ({first}); remove those lines, or allow leaks, which the file then records"
        )


def _normal(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))
