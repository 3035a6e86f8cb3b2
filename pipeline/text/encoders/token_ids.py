"""Token ids: a caption's words as ids in order, for heads that read words."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from pipeline.text import EncoderError
from pipeline.text.encoders.base import Encoder, Fitting, VocabularyReport, Words, report_on_texts
from pipeline.text.encoders.options import (
    WordOptions,
    encoder_option,
    tokenizer_option,
    vectors_option,
    vocabulary_option,
)
from pipeline.text.tokenizers.by_name import words_in
from pipeline.text.tokenizers.tokenizer import Tokenizer
from pipeline.text.vectors import load_vectors
from pipeline.text.vocabulary import Vocabulary, fit_vocabulary, load_vocabulary, vocabulary_rule

PADDING, UNKNOWN, START, END = range(4)
"""The first four token ids are marks. Word k of the vocabulary has the id k + 4."""

FIRST_WORD = 4
"""Token id of the vocabulary's first word."""

MOST_WORDS = 512
"""Most words of a row without `max_length`, since one long text would lengthen all rows."""


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


def longest_caption(texts: Sequence[str], tokenizer: Tokenizer, layout: TokenLayout) -> int:
    """Return the row length that fits the longest caption, of 1 word to `MOST_WORDS`."""
    words = max((len(tokenizer.tokenize(text)) for text in texts), default=0)
    return min(max(words, 1), MOST_WORDS) + layout.marks


@dataclass(frozen=True)
class IdOptions(WordOptions):
    """Options of an encoder whose rows are ids of words or tags."""

    layout: str = encoder_option(
        "kiros", choices=TOKEN_LAYOUTS, help="Token ids: layout, with the start and end tokens."
    )
    # None is replaced by the length of the longest training caption, up to `MOST_WORDS` words.
    max_length: int | None = encoder_option(
        None, least=1, help="Token ids: length of a row, including start and end tokens."
    )

    @property
    def rows_are_ids(self) -> bool:
        return True

    @property
    def length(self) -> int:
        """`max_length` of completed options."""
        if self.max_length is None:
            raise EncoderError(f"the encoder {self.name!r} needs `max_length`, which is null")
        return self.max_length

    def completed(self, captions: Sequence[str]) -> Self:
        if self.max_length is not None:
            return self
        longest = longest_caption(captions, self.words, TOKEN_LAYOUTS[self.layout])
        return replace(self, max_length=longest)


@dataclass(frozen=True)
class TokenIdsOptions(IdOptions):
    """Options of `TokenIds`; word vectors choose the vocabulary if unknown words are dropped."""

    tokenizer: str = tokenizer_option("vsepp")
    vocabulary: str = vocabulary_option("all")
    vectors: str | None = vectors_option(
        lambda options: TOKEN_LAYOUTS[options.layout].unknown == "dropped"
    )

    def words_of(self, texts: Sequence[str]) -> set[str]:
        return set() if self.vectors is None else words_in(texts, self.words)


_preset = partial(TokenIdsOptions, kind="token-ids")


class TokenIds(Encoder):
    """The token ids of captions, as float32 rows of one length.

    Ids are exact: float32 represents every integer up to 2^24. Captions with too many words are
    truncated before the end mark.
    """

    Options: ClassVar = TokenIdsOptions
    presets: ClassVar = (
        _preset("token-ids", vocabulary="vsepp", layout="vsepp"),
        _preset("token-ids-kiros", tokenizer="kiros"),
        _preset("token-ids-qian", tokenizer="treebank"),
        _preset("token-ids-words", layout="words"),
        _preset(
            "token-ids-w2vv", tokenizer="w2vv", vocabulary="w2vv", layout="w2vv", max_length=32
        ),
        _preset("token-ids-yan", tokenizer="treebank", layout="yan", max_length=48),
    )

    def __init__(
        self,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        max_length: int,  # of each row, including marks
        layout: TokenLayout = TOKEN_LAYOUTS["vsepp"],
    ) -> None:
        """Store the parts; recipes and the name call token ids "sequence"."""
        vocabulary.require_tokenizer(tokenizer)
        if max_length <= layout.marks:
            raise EncoderError(
                f"a row of {max_length} token ids is too short for a word: the layout "
                f"{layout.name!r} has {layout.marks} marks; set a length of {layout.marks + 1} or "
                "more"
            )
        self.vocabulary, self.tokenizer, self.layout = vocabulary, tokenizer, layout
        self.dim = max_length
        self.vocab_size = FIRST_WORD + len(vocabulary.words)  # row count of a head's word table
        self.name = f"sequence-{layout.name}-{max_length}-{vocabulary.name}"
        self.weights = vocabulary.name, vocabulary.sha256

    @classmethod
    def fit(cls, options: TokenIdsOptions, folder: Path, fitting: Fitting, words: Words) -> Self:
        if not (path := folder / options.vocabulary_file).exists():
            rule, captions = vocabulary_rule(options.vocabulary), fitting.training
            with_vector = None
            if options.vectors is not None:
                with_vector = load_vectors(options.vectors, words_in(captions, options.words)).index
            fit_vocabulary(path, rule, options.words, captions, fitting.monitor.log, with_vector)
        return cls.load(options, folder, words)

    @classmethod
    def load(cls, options: TokenIdsOptions, folder: Path, words: Words) -> Self:
        vocabulary, layout = load_vocabulary(folder / options.vocabulary_file), options.layout
        return cls(vocabulary, options.words, options.length, TOKEN_LAYOUTS[layout])

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
        rows = np.full((len(texts), self.dim), PADDING, dtype=np.float32)
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
        room = self.dim - self.layout.marks
        if self.layout.unknown == "number":
            return tokens[:room]
        with_id = [at for at, token in enumerate(tokens) if token in self.vocabulary.index]
        return tokens if len(with_id) <= room else tokens[: with_id[room]]

    def _ids(self, tokens: list[str]) -> list[int]:
        index, dropped = self.vocabulary.index, self.layout.unknown == "dropped"
        fitting = [token for token in self._fitting(tokens) if not dropped or token in index]
        return [index.get(token, UNKNOWN - FIRST_WORD) + FIRST_WORD for token in fitting]
