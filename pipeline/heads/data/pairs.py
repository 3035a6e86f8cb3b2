"""Images and captions as a head sees them: rows of features by number, and both sides joined by id.

`Rows` are the features of one side, in memory or read from shards when they are asked for;
`Pairs` are the rows of both sides of a split, with the image of each caption.
"""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipeline.datasets.manifest import MANIFEST_FILE, ImageEntry
from pipeline.hashing import sha256_of_file
from pipeline.heads import HeadError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import recall_table
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.format import OK
from pipeline.shards.index import FeatureIndex

Features = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.int64]

_BLOCK_BYTES = 1 << 24


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


@runtime_checkable
class EpochRows(Rows, Protocol):
    """Rows that are others in each epoch of a training, such as randomly cropped pictures."""

    def in_epoch(self, epoch: int) -> Rows:
        """Return the rows of an epoch, from 0."""


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


def loaded(rows: FeatureRows, in_memory: int) -> Rows:
    """Return rows in memory if they are fewer bytes than `in_memory` in float32, or else as given.

    Raises
    ------
    HeadError
        Rows that are read at once are not finite.
    """
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
            f"{[names[at] for at in bad[:5]]}; make these features again with `pipeline extract` "
            "or `pipeline text`"
        )


_FIGURES = (
    "image_to_text_r1",
    "text_to_image_r1",
    "image_to_text_r10",
    "text_to_image_r10",
    "rsum",
)

IN_MEMORY_BYTES = 1 << 30
"""A side of fewer float32 bytes is held in memory; a larger one is read as it is needed."""


@dataclass(frozen=True, eq=False)
class Lists:
    """A list of numbers for each of some rows.

    Attributes
    ----------
    starts : (rows + 1,) int64, where the list of each row starts in `values`; their number last.
    values : (n,) int64.
    """

    starts: RowNumbers
    values: RowNumbers

    @classmethod
    def of(cls, rows: RowNumbers, values: RowNumbers, num_rows: int) -> "Lists":
        """Return the lists of pairs (row, value), each in ascending order."""
        order = np.lexsort((values, rows))
        counts = np.bincount(rows, minlength=num_rows)
        return cls(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), values[order])

    def of_rows(self, rows: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
        """Return all values of some rows, and for each its place in `rows`."""
        number = self.starts[rows + 1] - self.starts[rows]
        place = np.repeat(np.arange(len(rows)), number)
        before = np.cumsum(number) - number
        return self.values[np.arange(len(place)) + (self.starts[rows] - before)[place]], place

    def digest(self) -> str:
        """Return a text that differs where the lists do."""
        return hashlib.sha256(self.starts.tobytes() + b"|" + self.values.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Links:
    """Which captions of `Pairs` are the same phrase, and which phrases describe which image.

    Attributes
    ----------
    phrases : features of the distinct phrases.
    phrase_of_caption : (captions,) int64, rows of `phrases`.
    phrases_of_image : all that describe an image, those too that make no pair with it.
    images_of_phrase : the same the other way.
    mined : features of boxes that no phrase describes, but that came nearer to one than its true
        boxes; None without any.
    mined_of_phrase : rows of `mined` by the phrase that they came near to; None without any.
    """

    phrases: Rows
    phrase_of_caption: RowNumbers
    phrases_of_image: Lists
    images_of_phrase: Lists
    mined: Rows | None = None
    mined_of_phrase: Lists | None = None

    def digest(self) -> str:
        """Return a text that differs where the phrases, the joining or the mined boxes do."""
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
    image_ids, caption_ids : ids in row order.
    image_of_caption : (captions,) int64, the row of each caption's image; ascending, no image
        without one.
    images, captions : the features of either side.
    links : which captions are the same phrase, where they describe several images; see
        `pipeline.heads.data.links`.
    """

    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    image_of_caption: RowNumbers
    images: Rows
    captions: Rows
    links: Links | None = None

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
        if self.links is not None:
            digest.update(self.links.digest().encode())
        return digest.hexdigest()

    def figures(self, images: Features, captions: Features, similarity: str) -> dict[str, float]:
        """Return R@1 and R@10 in both directions and rsum of embeddings, in percent."""
        table = recall_table(
            Embeddings(
                self.image_ids,
                images,
                self.caption_ids,
                self.caption_image_ids,
                captions,
                similarity,
                {},
            )
        )
        return {name: float(table[name]) for name in _FIGURES}


class HeldOut(Protocol):
    """What a split gives to choose an epoch or a setting by; `Pairs` are one."""

    @property
    def images(self) -> Rows:
        """Features of the images."""

    @property
    def captions(self) -> Rows:
        """Features of the captions."""

    def digest(self) -> str:
        """Return a text that differs where the features or the joining do."""

    def figures(self, images: Features, captions: Features, similarity: str) -> dict[str, float]:
        """Return figures of the rows' embeddings, all finite; by the greatest `rsum` is chosen."""


def made_from(dataset: str | Path, images: FeatureIndex, captions: FeatureIndex) -> dict[str, str]:
    """Return the hashes of the rows that a head or embeddings are made from, by name.

    Parameters
    ----------
    dataset : folder of the dataset.
    images, captions : features of both sides.
    """
    return {
        "manifest_sha256": sha256_of_file(Path(dataset) / MANIFEST_FILE),
        "images_sha256": images.content_sha256,
        "captions_sha256": captions.content_sha256,
    }


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
    caption_ids = tuple(caption_id for entry in captioned for caption_id in entry.caption_ids)
    require_same_texts(captioned, caption_ids, captions)
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


def require_same_texts(
    entries: Sequence[ImageEntry], caption_ids: Sequence[str], captions: FeatureSet
) -> None:
    """Check each caption against the CRC-32 that its features were made from, if it is known.

    Raises
    ------
    HeadError
    """
    made_from = captions.source_crc32[captions.rows_of(caption_ids)]
    texts = (caption for entry in entries for caption in entry.captions)
    now = np.array([zlib.crc32(text.encode()) for text in texts], np.uint32)
    if (other := np.flatnonzero((made_from != now) & (made_from != 0))).size:
        raise HeadError(
            f"{captions.folder} was made from other texts for {other.size} of {len(caption_ids)} "
            f"captions, first {[caption_ids[row] for row in other[:5]]}; run `pipeline text` "
            "again: it makes just those rows again"
        )
