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
from pipeline.heads.inputs.feature_rows import FeatureRows, Features, RowNumbers, Rows, loaded
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import mean_average_precision, recall_table
from pipeline.store.hashing import sha256_of_file, sha256_of_texts
from pipeline.store.packed import PackedTexts
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK
from pipeline.store.shards.index import FeatureIndex

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
    """A list of numbers for each row, in compressed form.

    Attributes
    ----------
    starts : (rows + 1,) int64, the start of each row's list in `values`, and the end of the last.
    values : (n,) int64.
    """

    starts: RowNumbers
    values: RowNumbers

    @classmethod
    def of(cls, rows: RowNumbers, values: RowNumbers, num_rows: int) -> "Lists":
        """Return the lists of pairs (row, value), each ascending."""
        order = np.lexsort((values, rows))
        counts = np.bincount(rows, minlength=num_rows)
        return cls(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), values[order])

    def of_rows(self, rows: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
        """Return all values of some rows, and the index into `rows` of each."""
        number = self.starts[rows + 1] - self.starts[rows]
        place = np.repeat(np.arange(len(rows)), number)
        before = np.cumsum(number) - number
        return self.values[np.arange(len(place)) + (self.starts[rows] - before)[place]], place

    def digest(self) -> str:
        """Return a digest of the lists."""
        return hashlib.sha256(self.starts.tobytes() + b"|" + self.values.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Links:
    """Which captions of `Pairs` are the same phrase, and which phrases describe which image.

    Attributes
    ----------
    phrases : Rows. Features of the distinct phrases.
    phrase_of_caption : (captions,) int64 rows of `phrases`.
    phrases_of_image : Lists. All phrases that describe an image, including unpaired ones.
    images_of_phrase : Lists. The inverse relation.
    mined : Rows or None. Features of mined boxes: unlabelled boxes that were closer to a phrase
        than its true boxes; None if there are none.
    mined_of_phrase : Lists or None. Rows of `mined` by phrase; None if there are none.
    """

    phrases: Rows
    phrase_of_caption: RowNumbers
    phrases_of_image: Lists
    images_of_phrase: Lists
    mined: Rows | None = None
    mined_of_phrase: Lists | None = None

    def digest(self) -> str:
        """Return a digest of the phrases, the relation and the mined boxes."""
        parts = [self.phrases.digest(), self.phrases_of_image.digest()]
        parts.append(hashlib.sha256(self.phrase_of_caption.tobytes()).hexdigest())
        if self.mined is not None and self.mined_of_phrase is not None:
            parts += [self.mined.digest(), self.mined_of_phrase.digest()]
        return " ".join(parts)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The images of a split and all their captions.

    Attributes
    ----------
    image_ids, caption_ids : sequence of str. Ids in row order.
    image_of_caption : (captions,) int64, ascending image rows; every image has a caption.
    images, captions : Rows. Features of both sides.
    links : Links or None. The relation of phrases and regions, if captions describe several images;
        see `pipeline.heads.inputs.links`.
    """

    image_ids: Sequence[str]
    caption_ids: Sequence[str]
    image_of_caption: RowNumbers
    images: Rows
    captions: Rows
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
        found = {name: float(table[name]) for name in _FIGURES}
        return {**found, "map": mean_average_precision(embeddings)} if with_map else found


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
        """Return metrics of embedded rows, all finite, with `rsum`.

        With `with_map`, also `map`, the mean average precision of image queries in percent.
        """


def made_from(
    dataset: str | Path, images: FeatureIndex, captions: FeatureIndex | None
) -> dict[str, str]:
    """Return the hashes of the inputs of a head or of embeddings, by name.

    Parameters
    ----------
    dataset : str or Path. Folder of the dataset.
    images, captions : FeatureIndex or None. Indexes of the features; None: no captions.
    """
    hashes = {
        "manifest_sha256": sha256_of_file(Path(dataset) / MANIFEST_FILE),
        "images_sha256": images.content_sha256,
    }
    return hashes if captions is None else {**hashes, "captions_sha256": captions.content_sha256}


def first_captions_of(image_of_caption: RowNumbers) -> RowNumbers:
    """Return the first caption row of each image, with the caption count appended.

    Parameters
    ----------
    image_of_caption : (captions,) ascending image rows; every image has a caption.

    Returns
    -------
    (images + 1,) int64
    """
    counts = np.bincount(image_of_caption)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def with_features(entries: PackedEntries, images: FeatureSet) -> PackedEntries:
    """Return the entries whose image has features; failed rows are left out.

    Raises
    ------
    MissingRows
        An image has no row.
    HeadError
        All rows failed.
    """
    kept = entries.take(np.flatnonzero(images.status[images.rows_of(entries.ids)] == OK))
    if not kept:
        raise HeadError(
            f"{images.folder}: none of the {len(entries)} images has features; fix the files and "
            "run `pipeline extract` again"
        )
    return kept


def join_pairs(
    entries: Sequence[ImageEntry],
    images: FeatureSet,
    captions: FeatureSet,
    in_memory: int = IN_MEMORY_BYTES,
) -> Pairs:
    """Join the features of images and their captions by id; images without captions are left out.

    Parameters
    ----------
    entries : sequence of ImageEntry. The images, in the order of the result.
    images, captions : FeatureSet. Features of both sides.
    in_memory : int. A side smaller than this, in float32 bytes, is loaded into memory.

    Raises
    ------
    MissingRows, FailedRows
        An image or caption has no features.
    HeadError
        No image has a caption, caption features are of another text, or loaded features are not
        finite.
    """
    packed = PackedEntries.of(entries)
    captioned = packed.take(np.flatnonzero(packed.num_captions))
    if not captioned:
        raise HeadError("none of the images has a caption, so there are no pairs")
    said = captioned.captions
    require_same_texts(said, captions)
    image_ids, caption_ids = captioned.ids, said.ids
    return Pairs(
        image_ids,
        caption_ids,
        np.repeat(np.arange(len(captioned)), captioned.num_captions),
        loaded(FeatureRows(images, image_ids), in_memory),
        loaded(FeatureRows(captions, caption_ids), in_memory),
    )


def require_same_texts(said: Captions, captions: FeatureSet) -> None:
    """Raise if the recorded CRC-32 of the text of a feature row differs from that of its caption.

    Raises
    ------
    HeadError
    """
    made_from = captions.source_crc32[captions.rows_of(said.ids)]
    now = np.fromiter((zlib.crc32(text.encode()) for text in said.texts), np.uint32, len(said.ids))
    if (other := np.flatnonzero((made_from != now) & (made_from != 0))).size:
        raise HeadError(
            f"{captions.folder} was computed from other texts for {other.size} of {len(said.ids)} "
            f"captions, first {[said.ids[row] for row in other[:5].tolist()]}; run `pipeline text` "
            "again, which recomputes only those rows"
        )
