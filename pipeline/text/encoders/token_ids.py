"""Word sequences: a caption as the numbers of its words, for heads that read them in order."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError
from pipeline.text.encoders.base import VocabularyReport, report_on, split_captions
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vocabulary import Vocabulary

PADDING, UNKNOWN, START, END = range(4)
"""What the first four numbers stand for. Word k of the vocabulary has the number k + 4."""

FIRST_WORD = 4
"""Number of the vocabulary's first word."""


class SequenceError(PipelineError):
    """Word sequences of the asked length cannot be made."""


@dataclass(frozen=True)
class SequenceLayout:
    """What stands around the words.

    Attributes
    ----------
    name : of the layout.
    start, end : whether `START` comes before the words and `END` after them.
    padding : whether `PADDING` fills the "front" or the "back" of a row.
    unknown : whether a word out of vocabulary is a "number" of its own (`UNKNOWN`) or "dropped".
    """

    name: str
    start: bool
    end: bool
    padding: Literal["front", "back"]
    unknown: Literal["number", "dropped"]

    @property
    def marks(self) -> int:
        """How many numbers of a row the start and the end take."""
        return self.start + self.end

    @property
    def unknown_row(self) -> str:
        """What a caption without a known word gets, for people."""
        marks = ["marks"] if self.marks else []
        numbers = ["unknown numbers"] if self.unknown == "number" else []
        return f"only {', '.join([*marks, *numbers, 'padding'])}"


SEQUENCE_LAYOUTS: dict[str, SequenceLayout] = {
    layout.name: layout
    for layout in (
        SequenceLayout("vsepp", start=True, end=True, padding="back", unknown="number"),
        SequenceLayout("kiros", start=False, end=True, padding="back", unknown="number"),
        SequenceLayout("w2vv", start=False, end=False, padding="front", unknown="number"),
        SequenceLayout("yan", start=False, end=False, padding="front", unknown="dropped"),
    )
}
"""The layouts of the papers, all with our numbers for the marks.

vsepp
    VSE++ (Faghri et al. 2018); captions are not cut there: give `longest_caption`.
kiros
    Kiros et al. 2014 and order-embeddings (Vendrov et al. 2016). Deviation: there one number is
    both end and padding.
w2vv
    Word2VisualVec (Dong et al. 2018), 32 words.
yan
    Yan 2019, 48 words, those without a fastText vector dropped: the vocabulary should have only
    words with one. Deviation: there padding is in front by a random number, which a head that
    trains can do with these rows.
"""


@dataclass(frozen=True)
class WordSequence:
    """The numbers of a caption's words in order, as float32 rows of one length.

    Numbers are exact: float32 holds every integer up to 2^24. A caption with too many words
    loses its last ones, never the end mark; `reports` counts these captions.

    Attributes
    ----------
    vocabulary : the words with numbers.
    policy : splits captions; the vocabulary was built with it.
    max_length : length of each row, marks included.
    layout : what stands around the words.

    Raises
    ------
    SequenceError
        The length leaves no place for a word.
    VocabularyError
        The vocabulary was built with another policy.
    """

    vocabulary: Vocabulary
    policy: Tokenizer
    max_length: int
    layout: SequenceLayout = SEQUENCE_LAYOUTS["vsepp"]

    def __post_init__(self) -> None:
        self.vocabulary.require_policy(self.policy)
        if self.max_length <= self.layout.marks:
            raise SequenceError(
                f"a row of {self.max_length} numbers has no place for a word: the layout "
                f"{self.layout.name!r} takes {self.layout.marks} for marks; give "
                f"{self.layout.marks + 1} or more"
            )

    @property
    def name(self) -> str:
        """`sequence-<layout>-<max_length>-<vocabulary>`."""
        return f"sequence-{self.layout.name}-{self.max_length}-{self.vocabulary.name}"

    @property
    def dim(self) -> int:
        """Length of each row."""
        return self.max_length

    @property
    def num_ids(self) -> int:
        """How many numbers there are, marks included: the rows of a head's word table."""
        return FIRST_WORD + len(self.vocabulary.words)

    @property
    def weights(self) -> tuple[str, str]:
        """The vocabulary."""
        return self.vocabulary.name, self.vocabulary.sha256

    @property
    def memory(self) -> int:
        """Nothing to speak of."""
        return 0

    def recipe(self) -> dict[str, Any]:
        """Return what makes the rows."""
        return {
            "name": self.name,
            "encoder": "sequence",
            "tokens": self.policy.to_json(),
            "vocabulary": self.vocabulary.name,
            "layout": asdict(self.layout),
            "ids": {"padding": PADDING, "unknown": UNKNOWN, "start": START, "end": END},
            "first_word": FIRST_WORD,
            "num_ids": self.num_ids,
            "too long": "last words cut off",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return word numbers, (texts, max_length) float32, integers in [0, num_ids)."""
        rows = np.full((len(texts), self.max_length), PADDING, dtype=np.float32)
        before = [START] * self.layout.start
        after = [END] * self.layout.end
        for row, text in zip(rows, texts, strict=True):
            ids = [*before, *self._ids(self.policy.tokenize(text)), *after]
            if ids:
                row[_place(len(ids), self.layout.padding)] = ids
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count which words are not in the vocabulary, and which captions are cut."""
        captions, cut = split_captions(texts, self.policy)
        held = [self._held(tokens) for tokens in captions]
        longer = {at for at, tokens in enumerate(captions) if len(tokens) > len(held[at])}
        report = report_on(
            held,
            self.vocabulary.index,
            unknown_row=self.layout.unknown_row,
            cut=sorted(longer.union(cut)),
        )
        return {self.name: report}

    def _held(self, tokens: list[str]) -> list[str]:
        """Return the tokens up to the last that a row has room for."""
        room = self.max_length - self.layout.marks
        if self.layout.unknown == "number":
            return tokens[:room]
        taking = [at for at, token in enumerate(tokens) if token in self.vocabulary.index]
        return tokens if len(taking) <= room else tokens[: taking[room]]

    def _ids(self, tokens: list[str]) -> list[int]:
        index, dropped = self.vocabulary.index, self.layout.unknown == "dropped"
        held = [token for token in self._held(tokens) if not dropped or token in index]
        return [index.get(token, UNKNOWN - FIRST_WORD) + FIRST_WORD for token in held]


def longest_caption(texts: Sequence[str], policy: Tokenizer, layout: SequenceLayout) -> int:
    """Return the length of row that cuts none of some captions, and holds one word at least."""
    words = max((len(policy.tokenize(text)) for text in texts), default=0)
    return max(words, 1) + layout.marks


def _place(length: int, padding: Literal["front", "back"]) -> slice:
    return slice(length) if padding == "back" else slice(-length, None)
