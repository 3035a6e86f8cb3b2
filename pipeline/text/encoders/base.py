"""The protocol of sentence encoders, their base class, and the report on unknown words."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.store.progress import QUIET, Monitor
from pipeline.store.wording import counted
from pipeline.text.encoders.options import EncoderOptions
from pipeline.text.tokenizers.tokenizer import Tokenizer

Words = Collection[str]
"""The words that an encoder looks up in the texts to encode."""


class CaptionEncoder(Protocol):
    """Protocol of all sentence encoders.

    A caption's row depends only on its text, bit for bit, not on the other captions in the call:
    rows are reused, and computed on any worker. Encoders that multiply matrices therefore do so in
    constant sizes, or in float64.

    Examples
    --------
    >>> encoder: CaptionEncoder = pipeline.load_encoder("data/text/mine/mean-glove-6b-50d.encoder")
    >>> rows = encoder.encode(["a dog runs"])  # (1, encoder.dim) float32
    """

    @property
    def name(self) -> str:
        """Name of the encoder with its weights or words, such as "mean-glove-6b-50d"."""

    @property
    def dim(self) -> int:
        """Length of each row."""

    @property
    def weights(self) -> tuple[str, str]:
        """Name and SHA-256 of everything loaded or fitted: vectors, vocabulary, codebook.

        Without any, the encoder's name and the SHA-256 of no bytes.
        """

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Names of the datasets that its weights were trained on; () if none or unknown."""

    @property
    def memory(self) -> int:
        """Upper bound of its memory while encoding, in bytes, without the rows."""

    def recipe(self) -> dict[str, Any]:
        """Return everything that determines the rows except the weights, and `dim`, as JSON."""

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (texts, dim) float32, finite; tokenization is included."""

    def reports(self, texts: Sequence[str]) -> dict[str, "VocabularyReport"]:
        """Return the report on out-of-vocabulary words of each part, by name."""


@dataclass(frozen=True, eq=False)
class Fitting:
    """The captions that an encoder is fitted on, and how."""

    training: Sequence[str]  # captions of the training split
    dataset: str  # names for the record
    split: str
    codebooks: Path | None = None  # folder of codebooks by vectors; None: each of its own fit
    device: str = "cpu"  # for principal components: "cpu", or a torch device
    monitor: Monitor = QUIET
    # Words that all parts of a concatenation look up in texts; None: of each part alone.
    words_of: Callable[[Sequence[str]], set[str]] | None = None
    # Folder of codebooks that other encoders fitted on the same words; None: they are not kept.
    work: Path | None = None


class Encoder:
    """Base class of the encoders that are fitted and loaded by name.

    A subclass is a `CaptionEncoder` and has `Options`, a dataclass of its options, and `load`. One
    that is fitted on captions also has `fit`. `pipeline.text.encoders.registry.KINDS` knows it by a
    line there, or by an entry point of another package.

    Examples
    --------
    >>> from pipeline.text.encoders.mean import Mean
    >>> [options.name for options in Mean.presets]
    ['mean', 'mean-all', 'mean-unit', 'mean-w2vv']
    """

    Options: ClassVar[type[Any]]  # a subclass of `EncoderOptions`
    presets: ClassVar[tuple[EncoderOptions, ...]] = ()  # the options that have a name
    named_by_model: ClassVar[bool] = False  # whether it is "<kind>:<model>", of a library's model

    trained_on: tuple[str, ...] = ()
    memory: int = 0
    # "distribution==version" of a class of another package, which the registry sets.
    plugin: str = ""

    @classmethod
    def require(cls, options: Any) -> None:
        """Raise if a package or file that `fit` needs is missing, before other work."""

    @classmethod
    def fit(cls, options: Any, folder: Path, fitting: Fitting, words: Words) -> CaptionEncoder:
        """Fit and save the files that `folder` lacks, and return the encoder as `load` does.

        Files in the folder are of an earlier, interrupted fit with the same options and captions.
        """
        return cls.load(options, folder, words)

    @classmethod
    def load(cls, options: Any, folder: Path, words: Words) -> CaptionEncoder:
        """Return the encoder that was fitted in a folder.

        `words` are those of the texts to encode, as `EncoderOptions.words_of` returns them, so that
        an encoder with word vectors loads no others.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class VocabularyReport:
    """Coverage of some captions by an encoder's vocabulary; truncated words are not counted."""

    captions: int
    tokens: int
    words: int  # distinct
    oov_tokens: int
    oov_words: tuple[tuple[str, int], ...]  # with counts, most frequent first, then alphabetically
    unknown_captions: tuple[int, ...]  # positions of the captions without a known word
    unknown_row: str  # row of such a caption, in words, such as "a zero vector"
    cut: tuple[int, ...]  # positions of the truncated captions

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
    vocabulary: Container[str],
    *,
    unknown_row: str = "a zero vector",
    cut: Sequence[int] = (),
) -> VocabularyReport:
    """Count the out-of-vocabulary tokens of captions, given as tokens after truncation.

    `captions` is iterated once; `cut` is read afterwards.
    """
    counts: Counter[str] = Counter()
    unknown = []
    position = -1
    for position, tokens in enumerate(captions):
        counts.update(tokens)
        if not any(token in vocabulary for token in tokens):
            unknown.append(position)
    oov = [(word, count) for word, count in counts.items() if word not in vocabulary]
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
    """Return the positions of the captions without a known word in any part, from their reports."""
    unknown = [{*report.unknown_captions} for report in reports]
    return set.intersection(*unknown) if unknown else set()  # an encoder may know every text


def report_on_texts(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    vocabulary: Container[str],
    *,
    fitting: Callable[[list[str]], list[str]] = list,
    unknown_row: str = "a zero vector",
) -> VocabularyReport:
    """Count the out-of-vocabulary words of some captions, one caption in memory at a time.

    `fitting` returns those of a caption's tokens that fit into a row.
    """
    whole, most = replace(tokenizer, max_length=None), tokenizer.max_length
    cut: list[int] = []

    def captions() -> Iterator[list[str]]:
        for position, text in enumerate(texts):
            tokens = whole.tokenize(text)
            shown = fitting(tokens[:most])
            if len(shown) < len(tokens):
                cut.append(position)
            yield shown

    return report_on(captions(), vocabulary, unknown_row=unknown_row, cut=cut)


def report_on_pieces(
    captions: Sequence[Sequence[str]], room: int | None, unknown: str | None, unknown_row: str
) -> VocabularyReport:
    """Report on captions as the pieces of a model that sees `room` of them; None: all."""
    cut = [at for at, pieces in enumerate(captions) if room is not None and len(pieces) > room]
    shown = [pieces[:room] for pieces in captions]
    vocabulary = {piece for pieces in shown for piece in pieces} - {unknown}
    return report_on(shown, vocabulary, unknown_row=unknown_row, cut=cut)


def _first(positions: Sequence[int]) -> str:
    return f" (first positions: {', '.join(map(str, positions[:5]))})"
