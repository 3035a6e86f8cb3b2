"""The protocol of sentence encoders, and the report of words that they do not know."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.wording import counted

if TYPE_CHECKING:
    from pipeline.text.fisher.codebook import Codebook
    from pipeline.text.vectors import WordVectors
    from pipeline.text.vocabulary import Vocabulary


class CaptionEncoder(Protocol):
    """What every sentence encoder offers.

    A caption's row depends on its text alone, bit for bit, not on its neighbours in the call.
    """

    @property
    def name(self) -> str:
        """The encoder and its weights or words, such as "mean-glove-6b-50d"."""

    @property
    def dim(self) -> int:
        """Length of each row."""

    @property
    def weights(self) -> tuple[str, str]:
        """Name and SHA-256 of all that was loaded or fitted: vectors, vocabulary, codebook."""

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Names of datasets that were learnt from elsewhere; () where none or not known."""

    @property
    def memory(self) -> int:
        """Upper bound, in bytes, of what it holds beside the rows while it encodes."""

    def recipe(self) -> dict[str, Any]:
        """Return everything but the weights that decides the rows, and `dim`, as JSON values."""

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32, finite; it splits the texts into words itself."""

    def reports(self, texts: Sequence[str]) -> dict[str, "VocabularyReport"]:
        """Return a report of the words that each member does not know, by the member's name."""


class Parts(Protocol):
    """What an encoder is put together from; each module of this room has an `assemble` for it."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Splits captions into words."""

    @property
    def vectors(self) -> "WordVectors":
        """Word vectors, of an encoder that computes with them."""

    def vocabulary(self) -> "Vocabulary":
        """Read the vocabulary that was fitted."""

    def codebooks(self) -> "tuple[Codebook, ...]":
        """Read the codebooks that were fitted."""

    def option(self, name: str) -> Any:
        """Return a field of the encoder's `pipeline.text.encoder_plans.EncoderSpec`."""


@dataclass(frozen=True)
class VocabularyReport:
    """How much of some captions an encoder's vocabulary covers.

    Words that were cut off a caption are not counted.

    Attributes
    ----------
    captions, tokens, words : number of captions, of tokens and of distinct words.
    oov_tokens : number of tokens that are out of vocabulary.
    oov_words : those words with their counts, most frequent first, then by the alphabet.
    unknown_captions : positions of the captions that have no known word.
    unknown_row : what such a caption gets, such as "a zero vector".
    cut : positions of the captions whose last words were cut off.
    """

    captions: int
    tokens: int
    words: int
    oov_tokens: int
    oov_words: tuple[tuple[str, int], ...]
    unknown_captions: tuple[int, ...]
    unknown_row: str
    cut: tuple[int, ...]

    def text(self) -> str:
        """Return the report as one paragraph."""
        share = 100 * self.oov_tokens / max(self.tokens, 1)
        parts = [
            f"{self.captions} captions, {self.tokens} tokens, {self.words} distinct words; "
            f"{self.oov_tokens} tokens ({share:.2f} %) of {len(self.oov_words)} words are out of "
            "vocabulary"
        ]
        if self.oov_words:
            most = ", ".join(f"{word[:40]} ({count})" for word, count in self.oov_words[:10])
            parts.append(f", most often {most}")
        unknown = counted(len(self.unknown_captions), "caption has", "captions have")
        parts.append(f". {unknown} no known word")
        if self.unknown_captions:
            gets = "gets" if len(self.unknown_captions) == 1 else "get"
            parts.append(f" and {gets} {self.unknown_row}{_first(self.unknown_captions)}")
        if self.cut:
            cut = counted(len(self.cut), "caption loses its", "captions lose their")
            parts.append(f". {cut} last words{_first(self.cut)}")
        return "".join(parts) + "."


def report_on(
    captions: Iterable[Sequence[str]],
    known: Container[str],
    *,
    unknown_row: str = "a zero vector",
    cut: Sequence[int] = (),
) -> VocabularyReport:
    """Count which tokens of some captions are not among the known words.

    Parameters
    ----------
    captions : the tokens of each, without those that were cut off; gone through once.
    known : the words of the vocabulary.
    unknown_row, cut : as in `VocabularyReport`; `cut` is read when the captions are at their end.
    """
    counts: Counter[str] = Counter()
    unknown = []
    position = -1
    for position, tokens in enumerate(captions):
        counts.update(tokens)
        if not any(token in known for token in tokens):
            unknown.append(position)
    oov = [(word, count) for word, count in counts.items() if word not in known]
    return VocabularyReport(
        captions=position + 1,
        tokens=counts.total(),
        words=len(counts),
        oov_tokens=sum(count for _, count in oov),
        oov_words=tuple(sorted(oov, key=lambda item: (-item[1], item[0]))),
        unknown_captions=tuple(unknown),
        unknown_row=unknown_row,
        cut=tuple(cut),
    )


def unknown_to_all(reports: Iterable[VocabularyReport]) -> set[int]:
    """Return the positions of the captions of which no member of an encoder knows a word.

    Parameters
    ----------
    reports : of the members, at least one, on the same captions.
    """
    return set.intersection(*(set(report.unknown_captions) for report in reports))


def report_on_texts(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    known: Container[str],
    *,
    held: Callable[[list[str]], list[str]] = list,
    unknown_row: str = "a zero vector",
) -> VocabularyReport:
    """Count which words of some captions are not known, holding one caption at a time.

    Parameters
    ----------
    texts : the captions.
    tokenizer : splits them, and may cut them.
    known, unknown_row : see `report_on`.
    held : returns those of a caption's tokens that a row has room for.
    """
    whole, most = replace(tokenizer, max_length=None), tokenizer.max_length
    cut: list[int] = []

    def captions() -> Iterator[list[str]]:
        for position, text in enumerate(texts):
            tokens = whole.tokenize(text)
            kept = held(tokens[:most])
            if len(kept) < len(tokens):
                cut.append(position)
            yield kept

    return report_on(captions(), known, unknown_row=unknown_row, cut=cut)


def _first(positions: Sequence[int]) -> str:
    return f" (first positions: {', '.join(map(str, positions[:5]))})"
