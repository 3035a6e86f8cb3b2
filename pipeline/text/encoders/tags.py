"""Part-of-speech tags of a caption's words as ids, followed by the end mark."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.text.encoders.base import CaptionEncoder, Parts, VocabularyReport, report_on_texts
from pipeline.text.encoders.token_ids import (
    END,
    FIRST_WORD,
    PADDING,
    START,
    TOKEN_LAYOUTS,
    UNKNOWN,
    TokenLayout,
)
from pipeline.text.taggers import TAG_SETS, UNIVERSAL, Tagger, tagger_called
from pipeline.text.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class TagIds:
    """The tags of captions, as float32 rows of one length: tag k of the set has the id k + 4.

    Tags are at the positions of their words; captions with too many words are truncated. A tag
    outside the set is `UNKNOWN`.
    """

    tokenizer: Tokenizer
    tagger: Tagger
    tag_set: str  # in `TAG_SETS`
    max_length: int  # of each row, including the end mark
    layout: TokenLayout  # without a start mark

    @property
    def name(self) -> str:
        """`tags-<tag set>-<length>-<tokenizer>-<tagger>`."""
        return f"tags-{self.tag_set}-{self.max_length}-{self.tokenizer.name}-{self.tagger.name}"

    @property
    def dim(self) -> int:
        return self.max_length

    @property
    def weights(self) -> tuple[str, str]:
        return self.tagger.name, self.tagger.sha256

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Empty: taggers are trained on text, not on captions of images."""
        return ()

    @property
    def memory(self) -> int:
        return 0

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
        rows = np.full((len(texts), self.max_length), PADDING, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            tags = self._tags(self.tokenizer.tokenize(text))[: self.max_length - 1]
            ids = [self._index.get(tag, UNKNOWN) for tag in tags]
            row[: len(ids) + 1] = [*ids, END]
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count tags outside the set and truncated captions."""
        report = report_on_texts(
            texts,
            self.tokenizer,
            self._index,
            fitting=lambda tokens: self._tags(tokens)[: self.max_length - 1],
            unknown_row="only the end mark and padding",
        )
        return {self.name: report}

    @cached_property
    def _index(self) -> dict[str, int]:
        return {tag: FIRST_WORD + at for at, tag in enumerate(TAG_SETS[self.tag_set])}

    def _tags(self, words: list[str]) -> list[str]:
        tags = self.tagger.tag(words) if words else []
        if self.tag_set == "universal":
            return [UNIVERSAL.get(tag, tag) for tag in tags]
        return tags


def assemble(parts: Parts) -> CaptionEncoder:
    return TagIds(
        parts.tokenizer,
        tagger_called(parts.option("tagger")),
        parts.option("tag_set"),
        parts.option("max_length"),
        TOKEN_LAYOUTS[parts.option("layout")],
    )
