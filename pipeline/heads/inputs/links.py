"""Captions that describe several images: phrases and regions, in a many-to-many relation.

Regions and phrases are `Pairs` in which a phrase is a caption of each of its regions. `Links`
records which captions are the same phrase, so that a head compares every region and every phrase
of a batch once (Wang et al. 2016, section 3.3).
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from pipeline.heads import HeadError
from pipeline.heads.inputs.batches import TensorBatch, in_batches, one_more_of_each
from pipeline.heads.inputs.feature_rows import Features, Rows
from pipeline.heads.inputs.pairs import Links, Lists, Pairs
from pipeline.store.shards.row_keys import RowNumbers


class RepeatedRows:
    """Rows with repetitions, as a view of other rows."""

    def __init__(self, rows: Rows, places: RowNumbers) -> None:
        """Store the row number in `rows` of each position, (n,)."""
        self._rows, self._places = rows, places
        self.row_shape: tuple[int, ...] = rows.row_shape

    def __len__(self) -> int:
        return len(self._places)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, *row_shape) float32 of positions (n,); see `Rows.take`."""
        return self._rows.take(self._places[rows])

    def digest(self) -> str:
        return hashlib.sha256(self._rows.digest().encode() + self._places.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class LinkedRows:
    """The rows of a batch, ascending and distinct."""

    images: RowNumbers  # rows of `Pairs.images`
    phrases: RowNumbers  # rows of `Links.phrases`
    mined: RowNumbers  # rows of `Links.mined`


@dataclass(frozen=True, eq=False)
class LinkedBatch(TensorBatch):
    """Distinct images and phrases, and which of them match."""

    images: Tensor  # (n, *row_shape) float32; mined boxes are last
    captions: Tensor  # (m, *row_shape) float32
    matches: Tensor  # (n, m) bool; all False for a mined box
    # (n, m) bool: all that do not match, and for a mined box only the phrases that it was mined
    # for, since it may show what other phrases name.
    negatives: Tensor


def linked_batches(
    pairs: Pairs, batch_size: int, mined_each: int, rng: np.random.Generator
) -> list[LinkedRows]:
    """Return an epoch: all pairs once in random order, in extended batches.

    Wang et al. 2016, section 3.3: `batch_size` pairs, plus one further phrase of each of their
    images and one further image of each of their phrases, if any; then `mined_each` mined boxes
    of each phrase that has some, sampled with replacement.
    """
    links = links_of(pairs)
    image_of, phrase_of = pairs.image_of_caption, links.phrase_of_caption
    sampled: list[RowNumbers] = []
    for rows in in_batches(rng.permutation(len(image_of)), batch_size):
        # Merged with the previous batch: a single image or phrase has no negatives.
        if sampled and any(
            len(np.unique(of[part])) < 2 for of in (image_of, phrase_of) for part in
            (rows, sampled[-1])
        ):  # fmt: skip
            sampled[-1] = np.concatenate([sampled[-1], rows])
        else:
            sampled.append(rows)
    batches = []
    for rows in sampled:
        images, phrases = np.unique(image_of[rows]), np.unique(phrase_of[rows])
        further_phrases = _further(links.phrases_of_image, images, phrases, rng)
        further_images = _further(links.images_of_phrase, phrases, images, rng)
        mined = _drawn(links.mined_of_phrase, phrases, mined_each, rng)
        batches.append(
            LinkedRows(
                np.union1d(images, further_images), np.union1d(phrases, further_phrases), mined
            )
        )
    return batches


def _further(
    lists: Lists, rows: RowNumbers, present: RowNumbers, rng: np.random.Generator
) -> RowNumbers:
    """Return for each row one random value of its list that is not in `there`, if any."""
    values, row_at = lists.of_rows(rows)
    free = ~np.isin(values, present)
    return one_more_of_each(values[free], row_at[free], len(rows), rng)


def _drawn(
    lists: Lists | None, rows: RowNumbers, each: int, rng: np.random.Generator
) -> RowNumbers:
    if lists is None:
        return np.zeros(0, np.int64)
    number = lists.starts[rows + 1] - lists.starts[rows]
    having = rows[number > 0]
    drawn = rng.integers(number[number > 0][:, None], size=(len(having), each))
    return np.unique(lists.values[lists.starts[having][:, None] + drawn])


def links_of(pairs: Pairs) -> Links:
    """Return the links of pairs; raise `ValueError` without links."""
    if pairs.links is None:
        raise ValueError("these pairs have no links")
    return pairs.links


def require_two_phrases(pairs: Pairs) -> None:
    """Raise HeadError for fewer than two regions or phrases: one would have no negative."""
    images, phrases = len(pairs.image_ids), len(links_of(pairs).phrases)
    if min(images, phrases) < 2:
        raise HeadError(
            f"{images} training regions and {phrases} distinct phrases found; at least 2 of each "
            "are needed, so that every one has a negative"
        )


class LinkedDataset(Dataset["LinkedBatch"]):
    """Batches of images and phrases, indexed by rows."""

    def __init__(self, pairs: Pairs) -> None:
        self._images, self._links = pairs.images, links_of(pairs)

    def __getitem__(self, rows: LinkedRows) -> "LinkedBatch":
        """Return a batch."""
        links = self._links
        matches = np.zeros((len(rows.images) + len(rows.mined), len(rows.phrases)), bool)
        column = np.full(len(links.phrases), -1)
        column[rows.phrases] = np.arange(len(rows.phrases))
        phrases, image_at = links.phrases_of_image.of_rows(rows.images)
        in_batch = column[phrases] >= 0
        matches[image_at[in_batch], column[phrases[in_batch]]] = True
        negatives = ~matches
        if links.mined_of_phrase is not None:
            mined, phrase = links.mined_of_phrase.of_rows(rows.phrases)
            row = np.searchsorted(rows.mined, mined)
            drawn = np.isin(mined, rows.mined)
            negatives[len(rows.images) :] = False
            negatives[len(rows.images) + row[drawn], phrase[drawn]] = True
        images = self._images.take(rows.images)
        if links.mined is not None and len(rows.mined):
            images = np.concatenate([images, links.mined.take(rows.mined)])
        return LinkedBatch(
            torch.from_numpy(images),
            torch.from_numpy(links.phrases.take(rows.phrases)),
            torch.from_numpy(matches),
            torch.from_numpy(negatives),
        )
