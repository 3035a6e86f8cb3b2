"""Images and their captions as a head sees them: rows of features, joined by id."""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pipeline.datasets.manifest import ImageEntry
from pipeline.errors import PipelineError
from pipeline.shards.format import OK
from pipeline.shards.read import FeatureSet

Features = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.int64]

IN_MEMORY_BYTES = 1 << 30
"""A side of fewer float32 bytes is held in memory; a larger one is read as it is needed."""

_BLOCK_BYTES = 1 << 24


class HeadError(PipelineError):
    """A head cannot take these inputs or settings, or its files are not what they should be."""


class Rows(Protocol):
    """Features of one side by row number; it may be sent to other processes.

    Attributes
    ----------
    row_shape : shape of one row.
    """

    row_shape: tuple[int, ...]

    def __len__(self) -> int: ...

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,), in their order, an array of its own.

        Raises
        ------
        HeadError
            A row is not finite.
        """

    def digest(self) -> str:
        """Return a text that differs where the features do."""


class ArrayRows:
    """Rows that are held in memory."""

    def __init__(self, array: Features) -> None:
        """Take (rows, *row_shape) float32, all finite.

        Raises
        ------
        HeadError
            A row is not finite.
        """
        _require_finite(array, range(len(array)), "the array of features")
        self._array = array
        self.row_shape: tuple[int, ...] = array.shape[1:]

    def __len__(self) -> int:
        return len(self._array)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,)."""
        return self._array[rows]

    def digest(self) -> str:
        """Return the SHA-256 of the rows."""
        return hashlib.sha256(np.ascontiguousarray(self._array).data).hexdigest()


class FeatureRows:
    """Rows that are read from shards when they are asked for, in whatever process."""

    def __init__(self, features: FeatureSet, ids: Sequence[str]) -> None:
        """Take the rows of `ids`, in that order.

        Raises
        ------
        MissingRows, FailedRows
            An id has no features.
        """
        features.blocks(ids)  # refuses such ids; nothing is read yet
        self._features = features
        self._ids = tuple(ids)
        self.row_shape = features.row_shape
        # A row is looked through once in a process, like its CRC-32.
        self._known_finite = np.zeros(len(ids), bool)

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,).

        Raises
        ------
        HeadError
            A row that is marked as sound has NaN or infinite numbers.
        DamagedShard
            A row is not what was written.
        """
        ids = [self._ids[row] for row in rows.tolist()]
        taken = self._features.read(ids).astype(np.float32, copy=False)
        fresh = np.flatnonzero(~self._known_finite[rows])
        if fresh.size:
            _require_finite(taken[fresh], [ids[at] for at in fresh], str(self._features.folder))
            self._known_finite[rows] = True
        return taken

    def digest(self) -> str:
        """Return the SHA-256 of the features' recipe hash and of the rows' checksums."""
        crc32 = self._features.crc32[self._features.rows_of(self._ids)]
        return hashlib.sha256(self._features.recipe_hash.encode() + crc32.tobytes()).hexdigest()


class AveragedRows:
    """Captions whose features are each the mean of those of all captions of their image.

    Qian & Lamberti 2018, section 5, "Baseline + Weight": the mean over the five captions of an
    image is the query. Of an image with more captions the first five count, as they do in
    evaluation; each of its captions gets their mean.
    """

    most = 5

    def __init__(self, rows: Rows, owner: RowNumbers) -> None:
        """Take caption features and the image row of each caption, (captions,) ascending."""
        self._rows, self._owner = rows, owner
        self._starts = first_captions_of(owner)
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


class RootedRows:
    """Features of unit length after the signed square root of each number.

    It evens out how much single channels weigh (Perronnin et al. 2010, section 3.1).
    """

    def __init__(self, rows: Rows) -> None:
        """Take the features of one side."""
        self._rows = rows
        self.row_shape = rows.row_shape

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of row numbers (n,); see `Rows.take`."""
        taken = self._rows.take(rows)
        roots = np.copysign(np.sqrt(np.abs(taken)), taken).reshape(len(taken), -1)
        norms = np.linalg.norm(roots.astype(np.float64), axis=1, keepdims=True)
        unit = roots / np.where(norms > 0, norms, 1)
        return unit.astype(np.float32).reshape(taken.shape)

    def digest(self) -> str:
        """Return a text that differs where the features do."""
        return hashlib.sha256(self._rows.digest().encode() + b"rooted").hexdigest()


@dataclass(frozen=True, eq=False)
class Pairs:
    """The images of a split and all their captions.

    Attributes
    ----------
    image_ids, caption_ids : ids in row order.
    owner : (captions,) int64, the row of each caption's image; ascending, no image without one.
    images, captions : the features of either side.
    """

    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    owner: RowNumbers
    images: Rows
    captions: Rows

    @property
    def caption_image_ids(self) -> tuple[str, ...]:
        """The image id of each caption."""
        return tuple(self.image_ids[row] for row in self.owner)

    def digest(self) -> str:
        """Return a text that differs where an id, a feature or the joining does."""
        digest = hashlib.sha256()
        for ids in (self.image_ids, self.caption_ids):
            digest.update("\0".join(ids).encode() + b"\0\0")
        digest.update(self.owner.tobytes())
        digest.update(self.images.digest().encode())
        digest.update(self.captions.digest().encode())
        return digest.hexdigest()


def first_captions_of(owner: RowNumbers) -> RowNumbers:
    """Return the first caption row of each image, and the number of captions at the end.

    Parameters
    ----------
    owner : (captions,) ascending image rows; every image has a caption.

    Returns
    -------
    (images + 1,) int64
    """
    counts = np.bincount(owner)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def with_features(entries: Sequence[ImageEntry], images: FeatureSet) -> tuple[ImageEntry, ...]:
    """Return the entries whose image has features, leaving out those whose row failed.

    Raises
    ------
    MissingRows
        An image has no row at all.
    """
    status = images.status[images.rows_of([entry.id for entry in entries])]
    return tuple(entry for entry, code in zip(entries, status, strict=True) if code == OK)


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
    owner = np.repeat(np.arange(len(captioned)), [len(entry.captions) for entry in captioned])
    return Pairs(
        image_ids,
        caption_ids,
        owner,
        _rows(FeatureRows(images, image_ids), in_memory),
        _rows(FeatureRows(captions, caption_ids), in_memory),
    )


def float32_bytes(rows: Rows) -> int:
    """Return the bytes that all rows take as float32."""
    return 4 * len(rows) * int(np.prod(rows.row_shape, dtype=np.int64))


def is_in_memory(rows: Rows) -> bool:
    """Say whether rows are in memory, and not read when they are asked for."""
    return isinstance(rows, ArrayRows)


def in_blocks(rows: Rows, most: int | None = None) -> Iterator[Features]:
    """Yield all rows in order, (n, *row_shape) float32, about 16 MiB at a time.

    Parameters
    ----------
    rows : what is read.
    most : never more rows than this at a time.
    """
    row_bytes = max(1, float32_bytes(rows) // max(1, len(rows)))
    step = max(1, _BLOCK_BYTES // row_bytes)
    step = step if most is None else min(step, most)
    for start in range(0, len(rows), step):
        yield rows.take(np.arange(start, min(start + step, len(rows))))


def mean_and_scale(rows: Rows) -> tuple[Doubles, float]:
    """Return the mean row and the root mean square of what differs from it, over all numbers.

    One pass in blocks, merged by the formula of Chan, Golub & LeVeque 1979, in float64.

    Returns
    -------
    mean : (*row_shape) float64.
    scale : at least 0.
    """
    mean, scatter, seen = np.zeros(rows.row_shape), 0.0, 0
    for block in in_blocks(rows):
        wide = block.astype(np.float64)
        own = wide.mean(axis=0)
        scatter += float(np.square(wide - own).sum())
        scatter += float(np.square(own - mean).sum()) * len(wide) * seen / (seen + len(wide))
        seen += len(wide)
        mean += (own - mean) * (len(wide) / seen)
    return mean, float(np.sqrt(scatter / max(1, seen * mean.size)))


def _rows(rows: FeatureRows, in_memory: int) -> Rows:
    if float32_bytes(rows) >= in_memory:
        return rows
    array = np.empty((len(rows), *rows.row_shape), np.float32)
    start = 0
    for block in in_blocks(rows):
        array[start : start + len(block)] = block
        start += len(block)
    return ArrayRows(array)


def _require_finite(features: Features, names: Sequence[object], where: str) -> None:
    bad = np.flatnonzero(~np.isfinite(features.reshape(len(features), -1)).all(axis=1))
    if bad.size:
        raise HeadError(
            f"{where}: {bad.size} rows have NaN or infinite numbers, first "
            f"{[names[at] for at in bad[:5]]}; make these features again, or leave the images out"
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
