"""Baselines without a language model: the nearest training caption, and the most frequent one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.datasets.entries import ImageEntry
from pipeline.heads.inputs.feature_rows import ArrayRows, FeatureRows, Features
from pipeline.heads.trained_head import TrainedHead
from pipeline.language import LanguageError
from pipeline.language.captioning.captions import Caption
from pipeline.language.scores.table import TOKENIZER
from pipeline.retrieval.search import Gallery, nearest
from pipeline.store.shards.feature_set import FeatureSet

_DRAWN = 4
"""Candidates per requested caption, since some are the same sentence."""


class NearestCaption:
    """Describes images by training captions near in a head's space (Kiros et al. 2014, 3.3)."""

    def __init__(
        self, head: TrainedHead, entries: Sequence[ImageEntry], captions: FeatureSet
    ) -> None:
        """Embed the captions of images, from features of the head's caption encoder."""
        head.inputs.captions.require(captions, "caption")
        self.head = head
        self._texts = {
            caption_id: text
            for entry in entries
            for caption_id, text in zip(entry.caption_ids, entry.captions, strict=True)
        }
        if not self._texts:
            raise LanguageError("the split has no caption to choose from; name another split")
        ids = tuple(self._texts)
        rows = head.head.embed_captions(FeatureRows(captions, ids))
        self._gallery = Gallery("captions", ids, rows, head.head.similarity)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The head, and the number of candidate captions."""
        return {
            "captioner": "nearest training caption",
            "training_captions": len(self._texts),
            "head": self.head.provenance,
        }

    def describe(
        self, images: Features, *, count: int = 5, seed: int = 0
    ) -> list[tuple[Caption, ...]]:
        """Return the nearest captions of each image, with the similarity as the score."""
        embedded = self.head.head.embed_images(ArrayRows(images))
        hits = nearest(
            self._gallery, embedded, "images", min(_DRAWN * count, len(self._gallery.ids))
        )
        described = []
        for rows, scores in zip(hits.rows, hits.scores, strict=True):
            texts: dict[str, float] = {}
            for row, value in zip(rows, scores, strict=True):
                texts.setdefault(self._texts[self._gallery.ids[row]], float(value))
            described.append(tuple(Caption(text, value) for text, value in texts.items())[:count])
        return described


class MostFrequentCaption:
    """Describes every image by the most frequent training captions."""

    def __init__(self, entries: Sequence[ImageEntry]) -> None:
        """Count the captions of images; the first one wins ties."""
        counted: Counter[tuple[str, ...]] = Counter()
        self._texts: dict[tuple[str, ...], str] = {}
        for entry in entries:
            for text in entry.captions:
                words = tuple(TOKENIZER.tokenize(text))
                counted[words] += 1
                self._texts.setdefault(words, text)
        if not counted:
            raise LanguageError("the split has no caption to choose from; name another split")
        self._counts = counted.most_common()
        self._of = counted.total()

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The number of counted captions."""
        return {"captioner": "most frequent training caption", "training_captions": self._of}

    def describe(
        self, images: Features, *, count: int = 5, seed: int = 0
    ) -> list[tuple[Caption, ...]]:
        """Return the most frequent captions for each image, with their share as the score."""
        best = self._counts[:count]
        captions = tuple(Caption(self._texts[words], number / self._of) for words, number in best)
        return [captions] * len(images)
