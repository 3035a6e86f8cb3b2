"""Part-of-speech tags of a caption's words as ids, followed by the end mark."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from pipeline.text.encoders.base import Encoder, VocabularyReport, Words, report_on_texts
from pipeline.text.encoders.options import encoder_option, tokenizer_option
from pipeline.text.encoders.token_ids import (
    END,
    FIRST_WORD,
    PADDING,
    START,
    TOKEN_LAYOUTS,
    UNKNOWN,
    IdOptions,
    TokenLayout,
)
from pipeline.text.taggers import (
    DEFAULT_TAGGER,
    SPACY_TAGGER,
    TAG_SETS,
    UNIVERSAL,
    Tagger,
    tagger_called,
)
from pipeline.text.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class TagIdsOptions(IdOptions):
    """Options of `TagIds`."""

    tokenizer: str = tokenizer_option("vsepp")
    tagger: str = encoder_option(
        DEFAULT_TAGGER,
        help="Tags: textblob, spacy, or perceptron:FILE, NLTK's averaged perceptron as JSON.  "
        "[default: textblob]",
    )
    tag_set: str = encoder_option("penn", choices=TAG_SETS)


class TagIds(Encoder):
    """The tags of captions, as float32 rows of one length: tag k of the set has the id k + 4.

    Tags are at the positions of their words; captions with too many words are truncated. A tag
    outside the set is `UNKNOWN`.
    """

    Options: ClassVar = TagIdsOptions
    presets: ClassVar = (
        TagIdsOptions("tags", "tags"),
        TagIdsOptions("tags-spacy", "tags", tagger=SPACY_TAGGER),
        TagIdsOptions("tags-universal", "tags", tag_set="universal"),
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        tagger: Tagger,
        tag_set: str,  # in `TAG_SETS`
        max_length: int,  # of each row, including the end mark
        layout: TokenLayout,  # without a start mark
    ) -> None:
        """Store the parts."""
        self.tokenizer, self.tagger, self.tag_set, self.layout = tokenizer, tagger, tag_set, layout
        self.dim = max_length
        self.name = f"tags-{tag_set}-{max_length}-{tokenizer.name}-{tagger.name}"
        self.weights = tagger.name, tagger.sha256
        self._index = {tag: FIRST_WORD + at for at, tag in enumerate(TAG_SETS[tag_set])}

    @classmethod
    def require(cls, options: TagIdsOptions) -> None:
        tagger_called(options.tagger)

    @classmethod
    def load(cls, options: TagIdsOptions, folder: Path, words: Words) -> Self:
        tagger, layout = tagger_called(options.tagger), TOKEN_LAYOUTS[options.layout]
        return cls(options.words, tagger, options.tag_set, options.length, layout)

    def recipe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": "tags",
            "tokens": self.tokenizer.to_json(),
            "tags": list(TAG_SETS[self.tag_set]),
            "layout": asdict(self.layout),
            "ids": {"padding": PADDING, "unknown": UNKNOWN, "start": START, "end": END},
            "first_tag": FIRST_WORD,
            "num_ids": FIRST_WORD + len(TAG_SETS[self.tag_set]),
            "too long": "last tags cut off",
            "dim": self.dim,
        }

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return tag ids, (texts, max_length) float32 with integer values."""
        rows = np.full((len(texts), self.dim), PADDING, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            tags = self._tags(self.tokenizer.tokenize(text))[: self.dim - 1]
            ids = [self._index.get(tag, UNKNOWN) for tag in tags]
            row[: len(ids) + 1] = [*ids, END]
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count tags outside the set and truncated captions."""
        report = report_on_texts(
            texts,
            self.tokenizer,
            self._index,
            fitting=lambda tokens: self._tags(tokens)[: self.dim - 1],
            unknown_row="only the end mark and padding",
        )
        return {self.name: report}

    def _tags(self, words: list[str]) -> list[str]:
        tags = self.tagger.tag(words) if words else []
        if self.tag_set == "universal":
            return [UNIVERSAL.get(tag, tag) for tag in tags]
        return tags
