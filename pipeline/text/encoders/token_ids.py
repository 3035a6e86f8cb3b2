"""Token ids: the words of a caption as numbers in order, for heads that read them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError
from pipeline.text.encoders.base import (
    CaptionEncoder,
    Parts,
    VocabularyReport,
    report_on_texts,
)
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vocabulary import Vocabulary

PADDING, UNKNOWN, START, END = range(4)
"""The first four token ids, the marks. Word k of the vocabulary has the id k + 4."""

FIRST_WORD = 4
"""Token id of the vocabulary's first word."""


class TokenIdsError(PipelineError):
    """Rows of token ids cannot have this length."""


@dataclass(frozen=True)
class TokenLayout:
    """The ids before and after those of the words.

    Attributes
    ----------
    name : of the layout.
    start, end : whether `START` comes before the words and `END` after them.
    padding : whether `PADDING` fills the "front" or the "back" of a row.
    unknown : whether a word out of vocabulary gets an id ("number": `UNKNOWN`) or is "dropped".
    """

    name: str
    start: bool
    end: bool
    padding: Literal["front", "back"]
    unknown: Literal["number", "dropped"]

    @property
    def marks(self) -> int:
        """How many ids of a row the start and the end take."""
        return self.start + self.end

    @property
    def unknown_row(self) -> str:
        """The row of a caption without a known word, in words."""
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
"""The layouts of the papers, all with our ids for the marks.

vsepp
    VSE++ (Faghri et al. 2018); captions are not cut there: give `longest_caption`.
kiros
    Kiros et al. 2014 and order-embeddings (Vendrov et al. 2016). Deviation: there one id is
    both end and padding.
w2vv
    Word2VisualVec (Dong et al. 2018), 32 words.
yan
    Yan 2019, 48 words, those without a fastText vector dropped: the vocabulary should have only
    words with one. Deviation: there padding is in front by a random number, which a head that
    trains can do with these rows.
words
    Nothing but the words that have a vector, for heads that sum them: a mark would be a word of
    every caption.
"""


@dataclass(frozen=True)
class TokenIds:
    """The token ids of captions, as float32 rows of one length.

    Ids are exact: float32 holds every integer up to 2^24. A caption with too many words
    loses its last ones, never the end mark; `reports` counts these captions.

    Attributes
    ----------
    vocabulary : the words that have an id of their own.
    tokenizer : splits captions; the vocabulary was built with it.
    max_length : length of each row, marks included.
    layout : what stands around the words.

    Raises
    ------
    TokenIdsError
        The length leaves no room for a word.
    VocabularyError
        The vocabulary was built with another tokenizer.
    """

    vocabulary: Vocabulary
    tokenizer: Tokenizer
    max_length: int
    layout: TokenLayout = TOKEN_LAYOUTS["vsepp"]

    def __post_init__(self) -> None:
        self.vocabulary.require_tokenizer(self.tokenizer)
        if self.max_length <= self.layout.marks:
            raise TokenIdsError(
                f"a row of {self.max_length} token ids has no place for a word: the layout "
                f"{self.layout.name!r} takes {self.layout.marks} for marks; give "
                f"{self.layout.marks + 1} or more"
            )

    @property
    def name(self) -> str:
        """`sequence-<layout>-<max_length>-<vocabulary>`: recipes say "sequence" of token ids."""
        return f"sequence-{self.layout.name}-{self.max_length}-{self.vocabulary.name}"

    @property
    def dim(self) -> int:
        """Length of each row."""
        return self.max_length

    @property
    def vocab_size(self) -> int:
        """How many ids there are, marks included: the rows of a head's table of words."""
        return FIRST_WORD + len(self.vocabulary.words)

    @property
    def weights(self) -> tuple[str, str]:
        """The vocabulary."""
        return self.vocabulary.name, self.vocabulary.sha256

    @property
    def trained_on(self) -> tuple[str, ...]:
        """None: it knows training captions alone."""
        return ()

    @property
    def memory(self) -> int:
        """None: the vocabulary is small."""
        return 0

    def recipe(self) -> dict[str, Any]:
        """Return everything that decides the rows but the weights, as JSON values."""
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
            if ids:
                row[_place(len(ids), self.layout.padding)] = ids
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count which words are not in the vocabulary, and which captions are cut."""
        report = report_on_texts(
            texts,
            self.tokenizer,
            self.vocabulary.index,
            held=self._held,
            unknown_row=self.layout.unknown_row,
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


def longest_caption(texts: Sequence[str], tokenizer: Tokenizer, layout: TokenLayout) -> int:
    """Return the least length of a row, 1 word or more, that cuts off no word of the captions."""
    words = max((len(tokenizer.tokenize(text)) for text in texts), default=0)
    return max(words, 1) + layout.marks


def _place(length: int, padding: Literal["front", "back"]) -> slice:
    return slice(length) if padding == "back" else slice(-length, None)


def assemble(parts: Parts) -> CaptionEncoder:
    """Return the encoder that its parts make."""
    layout = TOKEN_LAYOUTS[parts.option("layout")]
    return TokenIds(parts.vocabulary(), parts.tokenizer, parts.option("max_length"), layout)
