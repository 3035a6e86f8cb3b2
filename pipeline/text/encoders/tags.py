"""Tags: the part of speech of each word of a caption as numbers in order, and the end mark."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.text.encoders.base import (
    CaptionEncoder,
    Parts,
    VocabularyReport,
    report_on_texts,
)
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

    The word at a place has the tag at that place of the row; of a caption with too many words the
    last ones have none. A tag that is not in the set is `UNKNOWN`; `reports` counts them.

    Attributes
    ----------
    tokenizer : splits captions into the words that get a tag.
    tagger : gives Penn tags.
    tag_set : name in `TAG_SETS` of the tags that the rows have.
    max_length : length of each row, the end mark included.
    layout : what stands around the tags; without a start mark.
    """

    tokenizer: Tokenizer
    tagger: Tagger
    tag_set: str
    max_length: int
    layout: TokenLayout

    @property
    def name(self) -> str:
        """`tags-<tag set>-<length>-<tokenizer>-<tagger>`."""
        return f"tags-{self.tag_set}-{self.max_length}-{self.tokenizer.name}-{self.tagger.name}"

    @property
    def dim(self) -> int:
        """Length of each row."""
        return self.max_length

    @property
    def weights(self) -> tuple[str, str]:
        """The tagger."""
        return self.tagger.name, self.tagger.sha256

    @property
    def trained_on(self) -> tuple[str, ...]:
        """None: taggers learn from text, not from captions of images."""
        return ()

    @property
    def memory(self) -> int:
        """None worth counting."""
        return 0

    def recipe(self) -> dict[str, Any]:
        """Return everything that decides the rows but the tagger, as JSON values."""
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
        """Return tag ids, (texts, max_length) float32, integers."""
        rows = np.full((len(texts), self.max_length), PADDING, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            tags = self._tags(self.tokenizer.tokenize(text))[: self.max_length - 1]
            ids = [self._index.get(tag, UNKNOWN) for tag in tags]
            row[: len(ids) + 1] = [*ids, END]
        return rows

    def reports(self, texts: Sequence[str]) -> dict[str, VocabularyReport]:
        """Count which tags are not in the set, and which captions are cut."""
        report = report_on_texts(
            texts,
            self.tokenizer,
            self._index,
            held=lambda tokens: self._tags(tokens)[: self.max_length - 1],
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
    """Return the encoder that its parts make."""
    return TagIds(
        parts.tokenizer,
        tagger_called(parts.option("tagger")),
        parts.option("tag_set"),
        parts.option("max_length"),
        TOKEN_LAYOUTS[parts.option("layout")],
    )
