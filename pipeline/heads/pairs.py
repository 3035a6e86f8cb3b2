"""Images and their captions as a head sees them: features joined by id."""

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
        No image has a caption.
    """
    captioned = [entry for entry in entries if entry.captions]
    if not captioned:
        raise HeadError("none of the images has a caption, so there are no pairs")
    image_ids = tuple(entry.id for entry in captioned)
    caption_ids = tuple(one for entry in captioned for one in entry.caption_ids)
    owner = np.repeat(np.arange(len(captioned)), [len(entry.captions) for entry in captioned])
    return Pairs(
        image_ids,
        caption_ids,
        owner,
        images.read(image_ids).astype(np.float32, copy=False),
        captions.read(caption_ids).astype(np.float32, copy=False),
    )
