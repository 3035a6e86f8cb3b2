"""Images and captions of a split: the rows of both sides, joined by id."""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from pipeline.datasets.entries import Captions, ImageEntry, PackedEntries
from pipeline.datasets.manifest import MANIFEST_FILE
from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import FeatureRows, Features, Rows, loaded
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.recall import mean_average_precision, recall_table
from pipeline.store.hashing import sha256_of_file, sha256_of_texts
from pipeline.store.packed import PackedTexts
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.row_keys import RowNumbers

_FIGURES = (
    "image_to_text_r1",
    "text_to_image_r1",
    "image_to_text_r10",
    "text_to_image_r10",
    "rsum",
)

IN_MEMORY_BYTES = 1 << 30
"""A side of fewer float32 bytes is loaded into memory; a larger one is read on demand."""


@dataclass(frozen=True, eq=False)
class Lists:
    """A list of numbers for each row, in compressed form."""

    starts: RowNumbers  # (rows + 1,) start of each row's list in `values`, and the end of the last
    values: RowNumbers  # (n,)

    @classmethod
    def of(cls, rows: RowNumbers, values: RowNumbers, num_rows: int) -> "Lists":
        """Return the lists of pairs (row, value), each ascending."""
        order = np.lexsort((values, rows))
        counts = np.bincount(rows, minlength=num_rows)
        return cls(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), values[order])

    def of_rows(self, rows: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
        """Return all values of some rows, and the index into `rows` of each."""
        number = self.starts[rows + 1] - self.starts[rows]
        index = np.repeat(np.arange(len(rows)), number)
        before = np.cumsum(number) - number
        return self.values[np.arange(len(index)) + (self.starts[rows] - before)[index]], index

    def digest(self) -> str:
        """Return a digest of the lists."""
        return hashlib.sha256(self.starts.tobytes() + b"|" + self.values.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Links:
    """Which captions of `Pairs` are the same phrase, and which phrases describe which image."""

    phrases: Rows  # features of the distinct phrases
    phrase_of_caption: RowNumbers  # (captions,) rows of `phrases`
    phrases_of_image: Lists  # all phrases that describe an image, including unpaired ones
    images_of_phrase: Lists  # the inverse relation
    # Features of mined boxes: unlabelled boxes that were closer to a phrase than its true boxes.
    mined: Rows | None = None
    mined_of_phrase: Lists | None = None  # rows of `mined` by phrase

    def digest(self) -> str:
        """Return a digest of the phrases, the relation and the mined boxes."""
        parts = [self.phrases.digest(), self.phrases_of_image.digest()]
        parts.append(hashlib.sha256(self.phrase_of_caption.tobytes()).hexdigest())
        if self.mined is not None and self.mined_of_phrase is not None:
            parts += [self.mined.digest(), self.mined_of_phrase.digest()]
        return " ".join(parts)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The images of a split and all their captions."""

    image_ids: Sequence[str]  # in row order
    caption_ids: Sequence[str]  # in row order
    image_of_caption: RowNumbers  # (captions,) ascending image rows; every image has a caption
    images: Rows
    captions: Rows
    # Relation of phrases and regions, if captions describe several images.
    links: Links | None = None

    @property
    def caption_image_ids(self) -> Sequence[str]:
        """Image id of each caption."""
        return PackedTexts(self.image_ids[row] for row in self.image_of_caption.tolist())

    def digest(self) -> str:
        """Return a digest of ids, features and relation."""
        digest = hashlib.sha256()
        for ids in (self.image_ids, self.caption_ids):
            digest.update(sha256_of_texts(ids).encode())
        digest.update(self.image_of_caption.tobytes())
        digest.update(self.images.digest().encode())
        digest.update(self.captions.digest().encode())
        if self.links is not None:
            digest.update(self.links.digest().encode())
        return digest.hexdigest()

    def figures(
        self, images: Features, captions: Features, similarity: str, with_map: bool = False
    ) -> dict[str, float]:
        """Return R@1 and R@10 in both directions and rsum, in percent; see `HeldOut.figures`."""
        embeddings = Embeddings(
            self.image_ids,
            images,
            self.caption_ids,
            self.caption_image_ids,
            captions,
            similarity,
            {},
        )
        table = recall_table(embeddings)
        figures = {name: float(table[name]) for name in _FIGURES}
        return {**figures, "map": mean_average_precision(embeddings)} if with_map else figures


class HeldOut(Protocol):
    """Validation set for model selection; `Pairs` implement it."""

    @property
    def images(self) -> Rows:
        """Features of the images."""

    @property
    def captions(self) -> Rows:
        """Features of the captions."""

    def digest(self) -> str:
        """Return a digest of the features and the relation."""

    def figures(
        self, images: Features, captions: Features, similarity: str, with_map: bool = False
    ) -> dict[str, float]:
        """Return metrics in percent of finite embeddings: `rsum` and, with `with_map`, `map`."""


def made_from(
    dataset: str | Path, images: FeatureIndex, captions: FeatureIndex | None
) -> dict[str, str]:
    """Return the hashes of the inputs of a head or of embeddings, by name."""
    hashes = {
        "manifest_sha256": sha256_of_file(Path(dataset) / MANIFEST_FILE),
        "images_sha256": images.content_sha256,
    }
    return hashes if captions is None else {**hashes, "captions_sha256": captions.content_sha256}


def first_captions_of(image_of_caption: RowNumbers) -> RowNumbers:
    """Return (images + 1,), the first caption row of each image and the caption count."""
    counts = np.bincount(image_of_caption)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def with_features(entries: PackedEntries, images: FeatureSet) -> PackedEntries:
    """Return the entries whose image has features; raise HeadError if all rows failed."""
    available = entries.take(np.flatnonzero(images.status[images.rows_of(entries.ids)] == OK))
    if not available:
        raise HeadError(
            f"{images.folder}: none of the {len(entries)} images has features; fix the files and "
            "run `pipeline extract` again"
        )
    return available


def join_pairs(
    entries: Sequence[ImageEntry],
    images: FeatureSet,
    captions: FeatureSet,
    in_memory: int = IN_MEMORY_BYTES,
) -> Pairs:
    """Join the features of captioned images and of their captions by id."""
    packed = PackedEntries.of(entries)
    captioned = packed.take(np.flatnonzero(packed.num_captions))
    if not captioned:
        raise HeadError("none of the images has a caption, so there are no pairs")
    texts = captioned.captions
    require_same_texts(texts, captions)
    image_ids, caption_ids = captioned.ids, texts.ids
    return Pairs(
        image_ids,
        caption_ids,
        np.repeat(np.arange(len(captioned)), captioned.num_captions),
        loaded(FeatureRows(images, image_ids), in_memory),
        loaded(FeatureRows(captions, caption_ids), in_memory),
    )


def require_same_texts(expected: Captions, captions: FeatureSet) -> None:
    """Raise HeadError if features were computed from other texts, by their recorded CRC-32."""
    ids, texts = expected.ids, expected.texts
    recorded = captions.source_crc32[captions.rows_of(ids)]
    crc32 = np.fromiter((zlib.crc32(text.encode()) for text in texts), np.uint32, len(ids))
    if (other := np.flatnonzero((recorded != crc32) & (recorded != 0))).size:
        raise HeadError(
            f"{captions.folder} was computed from other texts for {other.size} of {len(ids)} "
            f"captions, first {[ids[row] for row in other[:5].tolist()]}; run `pipeline text` "
            "again, which recomputes only those rows"
        )
