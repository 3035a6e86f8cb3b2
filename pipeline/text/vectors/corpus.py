"""The sentences that word vectors are trained on: counted, and compared with captions."""

import hashlib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline.text.vectors.table import VectorsError


class LeakError(VectorsError):
    """A corpus to train on contains captions that no training may see."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokenized sentences.

    Attributes
    ----------
    sentences : the tokens of each, in the order that training takes them; some may be empty.
    """

    sentences: Sequence[Sequence[str]]

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each word occurs."""
        return Counter(token for sentence in self.sentences for token in sentence)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the sentences: tokens joined by spaces, each sentence with a `\\n` after."""
        digest = hashlib.sha256()
        for sentence in self.sentences:
            digest.update(" ".join(sentence).encode() + b"\n")
        return digest.hexdigest()

    def vocabulary(self, min_count: int) -> list[str]:
        """Return the words that occur `min_count` times or more."""
        return [word for word, count in self.counts.items() if count >= min_count]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a corpus file, one sentence each; blank ones too, so numbers hold.

    Raises
    ------
    VectorsError
        The file is missing, or a line is not UTF-8.
    """
    if not path.is_file():
        raise VectorsError(f"{path}: no such corpus; expected a text file, one sentence a line")
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
    """Return which sentences are held-out captions, whatever their case and tokenization.

    Two texts are equal if the same letters and digits follow each other (NFKC, case folded,
    everything else left out): "A dog's ball." and "a dog 's ball" are. A text without any is no
    leak. Only whole sentences are compared, so a line of two captions is not found.

    Parameters
    ----------
    corpus_sentences : the sentences, raw or tokens joined by spaces.
    held_out_captions : text of each caption id.

    Returns
    -------
    list of (line, caption id)
        Lines count from 1; every caption that a line equals is named.
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
    """Refuse a corpus file in which held-out captions were found.

    Raises
    ------
    LeakError
        `found` is not empty; the first lines and caption ids are named.
    """
    if found:
        first = "; ".join(f"line {line} is {caption_id}" for line, caption_id in found[:5])
        raise LeakError(
            f"{path}: {len({line for line, _ in found})} lines are captions that are held out, "
            f"expected none ({first}); remove those lines, or allow leaks: "
            "then they are trained on all the same, which is recorded in the file"
        )


def _normal(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))
