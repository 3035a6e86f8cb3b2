"""Token ids: a caption's words as ids in order, for heads that read words."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.text import EncoderError
from pipeline.text.encoders.base import CaptionEncoder, Parts, VocabularyReport, report_on_texts
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vocabulary import Vocabulary

PADDING, UNKNOWN, START, END = range(4)
"""The first four token ids are marks. Word k of the vocabulary has the id k + 4."""

FIRST_WORD = 4
"""Token id of the vocabulary's first word."""


@dataclass(frozen=True)
class TokenLayout:
    """Marks, padding and unknown words in a row."""

    name: str
    start: bool  # whether `START` precedes the words
    end: bool  # whether `END` follows them
    padding: Literal["front", "back"]
    unknown: Literal["number", "dropped"]  # out-of-vocabulary words: the id `UNKNOWN`, or no id

    @property
    def marks(self) -> int:
        """Number of start and end marks in a row."""
        return self.start + self.end

    @property
    def unknown_row(self) -> str:
        """Description of the row of a caption without a known word."""
        marks = ["marks"] if self.marks else []
        unknown = ["unknown ids"] if self.unknown == "number" else []
        return f"only {', '.join([*marks, *unknown, 'padding'])}"


TOKEN_LAYOUTS: dict[str, TokenLayout] = {
    layout.name: layout
    for layout in (
        TokenLayout("vsepp", start=True, end=True, padding="back", unknown="number"),
        TokenLayout("kiros", start=False, end=True, padding="back", unknown="number"),
        TokenLayout("w2vv", start=False, end=False, padding="front", unknown="number"),
        TokenLayout("yan", start=False, end=False, padding="front", unknown="dropped"),
        TokenLayout("words", start=False, end=False, padding="back", unknown="dropped"),
    )
}
"""The layouts of the papers, with our ids for the marks.

vsepp
    VSE++ (Faghri et al. 2018), which does not truncate captions: use `longest_caption`.
kiros
    Kiros et al. 2014 and order-embeddings (Vendrov et al. 2016). Deviation: theirs has one id for
    end and padding.
w2vv
    Word2VisualVec (Dong et al. 2018), 32 words.
yan
    Yan 2019, 48 words; words without a fastText vector are dropped, so the vocabulary should have
    only words with one. Deviation: theirs pads in front by a random number, which a head can do
    in training with these rows.
words
    Only the words with a vector, for heads that sum them: a mark would be a word of every caption.
"""


@dataclass(frozen=True)
class TokenIds:
    """The token ids of captions, as float32 rows of one length.

    Ids are exact: float32 represents every integer up to 2^24. Captions with too many words are
    truncated before the end mark.
    """

    vocabulary: Vocabulary
    tokenizer: Tokenizer
    max_length: int  # of each row, including marks
    layout: TokenLayout = TOKEN_LAYOUTS["vsepp"]

    def __post_init__(self) -> None:
        self.vocabulary.require_tokenizer(self.tokenizer)
        if self.max_length <= self.layout.marks:
            raise EncoderError(
                f"a row of {self.max_length} token ids is too short for a word: the layout "
                f"{self.layout.name!r} has {self.layout.marks} marks; set a length of "
                f"{self.layout.marks + 1} or more"
            )

    @property
    def name(self) -> str:
        """`sequence-<layout>-<max_length>-<vocabulary>`; recipes call token ids "sequence"."""
        return f"sequence-{self.layout.name}-{self.max_length}-{self.vocabulary.name}"

    @property
    def dim(self) -> int:
        return self.max_length

    @property
    def vocab_size(self) -> int:
        """Number of ids including marks: the row count of a head's word table."""
        return FIRST_WORD + len(self.vocabulary.words)

    @property
    def weights(self) -> tuple[str, str]:
        return self.vocabulary.name, self.vocabulary.sha256

    @property
    def trained_on(self) -> tuple[str, ...]:
        return ()

    @property
    def memory(self) -> int:
        return 0

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "sequence",
            "tokens": self.tokenizer.to_json(),
            "vocabulary": self.vocabulary.name,
            "layout": asdict(self.layout),
            "ids": {"padding": PADDING, "unknown": UNKNOWN, "start": START, "end": END},
            "first_word": FIRST_WORD,
            "num_ids": self.vocab_size,
            "too long": "last words cut off",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return token ids, (texts, max_length) float32, integers in [0, vocab_size)."""
        rows = np.full((len(texts), self.max_length), PADDING, dtype=np.float32)
        before = [START] * self.layout.start
        after = [END] * self.layout.end
        for row, text in zip(rows, texts, strict=True):
            ids = [*before, *self._ids(self.tokenizer.tokenize(text)), *after]
            start = 0 if self.layout.padding == "back" else len(row) - len(ids)
            row[start : start + len(ids)] = ids
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count out-of-vocabulary words and truncated captions."""
        report = report_on_texts(
            texts,
            self.tokenizer,
            self.vocabulary.index,
            fitting=self._fitting,
            unknown_row=self.layout.unknown_row,
        )
        return {self.name: report}

    def _fitting(self, tokens: list[str]) -> list[str]:
        """Return the tokens up to the last one that fits into a row."""
        room = self.max_length - self.layout.marks
        if self.layout.unknown == "number":
            return tokens[:room]
        with_id = [at for at, token in enumerate(tokens) if token in self.vocabulary.index]
        return tokens if len(with_id) <= room else tokens[: with_id[room]]

    def _ids(self, tokens: list[str]) -> list[int]:
        index, dropped = self.vocabulary.index, self.layout.unknown == "dropped"
        fitting = [token for token in self._fitting(tokens) if not dropped or token in index]
        return [index.get(token, UNKNOWN - FIRST_WORD) + FIRST_WORD for token in fitting]


def longest_caption(texts: Sequence[str], tokenizer: Tokenizer, layout: TokenLayout) -> int:
    """Return the row length that fits the longest caption, with at least 1 word."""
    words = max((len(tokenizer.tokenize(text)) for text in texts), default=0)
    return max(words, 1) + layout.marks


def assemble(parts: Parts) -> CaptionEncoder:
    layout = TOKEN_LAYOUTS[parts.option("layout")]
    return TokenIds(parts.vocabulary(), parts.tokenizer, parts.option("max_length"), layout)
