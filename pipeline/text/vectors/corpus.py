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
    """Tokenized sentences in training order; some may be empty."""

    sentences: Sequence[Sequence[str]]

    @cached_property
    def counts(self) -> Counter[str]:
        """Number of occurrences of each word."""
        return Counter(token for sentence in self.sentences for token in sentence)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the sentences: tokens joined by spaces, a line break after each sentence."""
        digest = hashlib.sha256()
        for sentence in self.sentences:
            digest.update(" ".join(sentence).encode() + b"\n")
        return digest.hexdigest()

    def vocabulary(self, min_count: int) -> list[str]:
        """Return the words with `min_count` occurrences or more."""
        return [word for word, count in self.counts.items() if count >= min_count]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a corpus file, one sentence each, including blank ones."""
    if not path.is_file():
        raise VectorsError(f"{path}: no such corpus; expected a text file, one sentence per line")
    lines = []
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            try:
                lines.append(raw.rstrip(b"\r\n").decode("utf-8-sig"))
            except UnicodeDecodeError as error:
                raise VectorsError(
                    f"{path}, line {number}: is not UTF-8 ({error.reason}); convert the file"
                ) from error
    return lines


def leaks(
    corpus_sentences: Iterable[str], held_out_captions: Mapping[str, str]
) -> list[tuple[int, str]]:
    """Return (line, caption id) of sentences that are held-out captions; lines count from 1.

    Texts are compared by their sequence of letters and digits (NFKC, case-folded): "A dog's ball."
    equals "a dog 's ball". Only whole sentences are compared, so a line with two captions is not
    found.
    """
    ids: dict[str, list[str]] = defaultdict(list)
    for caption_id, caption in held_out_captions.items():
        ids[_normal(caption)].append(caption_id)
    ids.pop("", None)  # texts without a letter or digit
    return [
        (line, caption_id)
        for line, sentence in enumerate(corpus_sentences, 1)
        for caption_id in ids.get(_normal(sentence), ())
    ]


def refuse_leaks(path: Path, leaked: Sequence[tuple[int, str]]) -> None:
    """Raise if held-out captions were found in a corpus file."""
    if leaked:
        first = "; ".join(f"line {line} is {caption_id}" for line, caption_id in leaked[:5])
        raise VectorsError(
            f"{path}: {len({line for line, _ in leaked})} lines are held-out captions, expected "
            f"none ({first}); remove those lines, or allow leaks, which the file then records"
        )


def _normal(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))
