"""One caption per image: the mean features of its captions, after Qian & Lamberti 2018."""

import hashlib

import numpy as np

from pipeline.heads.inputs.feature_rows import Features, Rows
from pipeline.heads.inputs.pairs import Pairs, first_captions_of
from pipeline.store.shards.row_keys import RowNumbers


class AveragedRows:
    """Mean features of each image's first five captions: Qian & Lamberti 2018, section 5."""

    most = 5

    def __init__(self, rows: Rows, image_of_caption: RowNumbers) -> None:
        """Wrap caption features with the image row of each caption, (captions,) ascending."""
        self._rows = rows
        self._starts = first_captions_of(image_of_caption)
        self.row_shape: tuple[int, ...] = rows.row_shape

    def __len__(self) -> int:
        return len(self._starts) - 1

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of image rows (n,); see `Rows.take`."""
        means = np.empty((len(rows), *self.row_shape), np.float32)
        for at, image in enumerate(rows):
            start, stop = self._starts[image], self._starts[image + 1]
            captions = np.arange(start, min(stop, start + self.most))
            means[at] = self._rows.take(captions).mean(axis=0, dtype=np.float64)
        return means

    def digest(self) -> str:
        return hashlib.sha256(
            self._rows.digest().encode() + self._starts.tobytes() + b"averaged"
        ).hexdigest()


def averaged(pairs: Pairs) -> Pairs:
    """Return pairs with one caption per image, `<image id>#mean`, the mean of its captions."""
    return Pairs(
        pairs.image_ids,
        tuple(f"{image_id}#mean" for image_id in pairs.image_ids),
        np.arange(len(pairs.image_ids)),
        pairs.images,
        AveragedRows(pairs.captions, pairs.image_of_caption),
    )
