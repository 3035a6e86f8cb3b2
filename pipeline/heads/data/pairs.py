"""Images and their captions as a head sees them: rows of features, joined by id."""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.datasets.manifest import ImageEntry
from pipeline.heads.data.rows import FeatureRows, Features, RowNumbers, Rows, loaded
from pipeline.heads.errors import HeadError
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.format import OK

IN_MEMORY_BYTES = 1 << 30
"""A side of fewer float32 bytes is held in memory; a larger one is read as it is needed."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The images of a split and all their captions.

    Attributes
    ----------
    image_ids, caption_ids : ids in row order.
    image_of_caption : (captions,) int64, the row of each caption's image; ascending, no image
        without one.
    images, captions : the features of either side.
    """

    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    image_of_caption: RowNumbers
    images: Rows
    captions: Rows

    @property
    def caption_image_ids(self) -> tuple[str, ...]:
        """The image id of each caption."""
        return tuple(self.image_ids[row] for row in self.image_of_caption)

    def digest(self) -> str:
        """Return a text that differs where an id, a feature or the joining does."""
        digest = hashlib.sha256()
        for ids in (self.image_ids, self.caption_ids):
            digest.update("\0".join(ids).encode() + b"\0\0")
        digest.update(self.image_of_caption.tobytes())
        digest.update(self.images.digest().encode())
        digest.update(self.captions.digest().encode())
        return digest.hexdigest()


class AveragedRows:
    """Captions whose features are each the mean of those of all captions of their image.

    Qian & Lamberti 2018, section 5, "Baseline + Weight": the mean over the five captions of an
    image is the query. Of an image with more captions the first five count, as they do in
    evaluation; each of its captions gets their mean.
    """

    most = 5

    def __init__(self, rows: Rows, image_of_caption: RowNumbers) -> None:
        """Take caption features and the image row of each caption, (captions,) ascending."""
        self._rows, self._owner = rows, image_of_caption
        self._starts = first_captions_of(image_of_caption)
        self.row_shape = rows.row_shape

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,); see `Rows.take`."""
        owners, place = np.unique(self._owner[rows], return_inverse=True)
        means = np.empty((len(owners), *self.row_shape), np.float32)
        for at, image in enumerate(owners):
            start, stop = self._starts[image], self._starts[image + 1]
            own = np.arange(start, min(stop, start + self.most))
            means[at] = self._rows.take(own).mean(axis=0, dtype=np.float64)
        return means[place]

    def digest(self) -> str:
        """Return a text that differs where the features or their images do."""
        return hashlib.sha256(
            self._rows.digest().encode() + self._owner.tobytes() + b"averaged"
        ).hexdigest()


def first_captions_of(image_of_caption: RowNumbers) -> RowNumbers:
    """Return the first caption row of each image, and the number of captions at the end.

    Parameters
    ----------
    image_of_caption : (captions,) ascending image rows; every image has a caption.

    Returns
    -------
    (images + 1,) int64
    """
    counts = np.bincount(image_of_caption)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def with_features(entries: Sequence[ImageEntry], images: FeatureSet) -> tuple[ImageEntry, ...]:
    """Return the entries whose image has features, leaving out those whose row failed.

    Raises
    ------
    MissingRows
        An image has no row at all.
    HeadError
        None has features.
    """
    status = images.status[images.rows_of([entry.id for entry in entries])]
    kept = tuple(entry for entry, code in zip(entries, status, strict=True) if code == OK)
    if not kept:
        raise HeadError(
            f"{images.folder}: none of the {len(entries)} images has features; mend the files and "
            "run `pipeline extract` again"
        )
    return kept


def join_pairs(
    entries: Sequence[ImageEntry],
    images: FeatureSet,
    captions: FeatureSet,
    in_memory: int = IN_MEMORY_BYTES,
) -> Pairs:
    """Join the features of some images and their captions by id.

    Images without a caption take no part: there is nothing to pair them with.

    Parameters
    ----------
    entries : the images, in the order of the result.
    images, captions : features of either side.
    in_memory : a side whose rows are fewer bytes than this in float32 is read at once.

    Raises
    ------
    MissingRows, FailedRows
        An image or caption has no features.
    HeadError
        No image has a caption, a caption's features were made from another text, or features
        that are read at once are not finite.
    """
    captioned = [entry for entry in entries if entry.captions]
    if not captioned:
        raise HeadError("none of the images has a caption, so there are no pairs")
    image_ids = tuple(entry.id for entry in captioned)
    caption_ids = tuple(one for entry in captioned for one in entry.caption_ids)
    _require_same_texts(captioned, caption_ids, captions)
    image_of_caption = np.repeat(
        np.arange(len(captioned)), [len(entry.captions) for entry in captioned]
    )
    return Pairs(
        image_ids,
        caption_ids,
        image_of_caption,
        loaded(FeatureRows(images, image_ids), in_memory),
        loaded(FeatureRows(captions, caption_ids), in_memory),
    )


def _require_same_texts(
    entries: Sequence[ImageEntry], caption_ids: Sequence[str], captions: FeatureSet
) -> None:
    """Check each caption against the CRC-32 that its features were made from, if it is known."""
    made_from = captions.source_crc32[captions.rows_of(caption_ids)]
    texts = (caption for entry in entries for caption in entry.captions)
    now = np.array([zlib.crc32(text.encode()) for text in texts], np.uint32)
    if (other := np.flatnonzero((made_from != now) & (made_from != 0))).size:
        raise HeadError(
            f"{captions.folder} was made from other texts for {other.size} of {len(caption_ids)} "
            f"captions, first {[caption_ids[row] for row in other[:5]]}; run `pipeline text` "
            "again: it makes just those rows again"
        )
