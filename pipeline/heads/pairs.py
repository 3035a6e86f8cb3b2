"""Images and their captions as a head sees them: features joined by id."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.datasets.manifest import ImageEntry
from pipeline.errors import PipelineError
from pipeline.shards.format import OK
from pipeline.shards.read import FeatureSet

Features = npt.NDArray[np.float32]


class HeadError(PipelineError):
    """A head cannot take these inputs or settings, or its files are not what they should be."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The images of a split and all their captions.

    Attributes
    ----------
    image_ids, caption_ids : ids in row order.
    owner : (captions,) int64, the row of each caption's image; ascending.
    images : (images, *shape) float32. captions : (captions, *shape) float32.
    """

    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    owner: npt.NDArray[np.int64]
    images: Features
    captions: Features

    @property
    def caption_image_ids(self) -> tuple[str, ...]:
        """The image id of each caption."""
        return tuple(self.image_ids[row] for row in self.owner)


def with_features(entries: Sequence[ImageEntry], images: FeatureSet) -> tuple[ImageEntry, ...]:
    """Return the entries whose image has features, leaving out those whose row failed.

    Raises
    ------
    MissingRows
        An image has no row at all.
    """
    status = images.status[images.rows_of([entry.id for entry in entries])]
    return tuple(entry for entry, code in zip(entries, status, strict=True) if code == OK)


def join_pairs(entries: Sequence[ImageEntry], images: FeatureSet, captions: FeatureSet) -> Pairs:
    """Read the features of some images and their captions, joined by id.

    Images without a caption take no part: there is nothing to pair them with.

    Raises
    ------
    MissingRows, FailedRows
        An image or caption has no features.
    HeadError
        No image has a caption, or a caption's features were made from another text.
    """
    captioned = [entry for entry in entries if entry.captions]
    if not captioned:
        raise HeadError("none of the images has a caption, so there are no pairs")
    image_ids = tuple(entry.id for entry in captioned)
    caption_ids = tuple(one for entry in captioned for one in entry.caption_ids)
    _require_same_texts(captioned, caption_ids, captions)
    owner = np.repeat(np.arange(len(captioned)), [len(entry.captions) for entry in captioned])
    return Pairs(
        image_ids,
        caption_ids,
        owner,
        images.read(image_ids).astype(np.float32, copy=False),
        captions.read(caption_ids).astype(np.float32, copy=False),
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
