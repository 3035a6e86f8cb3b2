"""Regions and phrases as a head sees them: training pairs, and the queries of a held-out split."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.photo_size import photo_size
from pipeline.datasets.phrases import RegionPhrase
from pipeline.heads.inputs.feature_rows import FeatureRows, Features, Rows, loaded
from pipeline.heads.inputs.links import RepeatedRows
from pipeline.heads.inputs.pairs import IN_MEMORY_BYTES, Links, Lists, Pairs
from pipeline.localization import LocalizationError
from pipeline.localization.evaluate_localization import CUTOFFS
from pipeline.localization.localized import Localized
from pipeline.localization.measures import by_head, rank
from pipeline.regions.ground_truth import true_regions
from pipeline.regions.proposals import Proposals, region_id
from pipeline.shards.feature_set import FeatureSet
from pipeline.text.unique_phrases import phrase_key, plain_phrase

REGIONS_A_PHRASE = 10
"""Of how many regions a phrase makes training pairs at most (Wang et al. 2016, section 3.3)."""


def training_pairs(
    phrases: Sequence[RegionPhrase], truth: FeatureSet, texts: FeatureSet, seed: int
) -> Pairs:
    """Return the pairs of true regions and phrases, with all their links.

    Of a phrase with more than `REGIONS_A_PHRASE` regions that many make pairs, drawn from the seed.
    Regions without a pair are left out; the links of the others have every phrase that names them.

    Parameters
    ----------
    phrases : of the training split.
    truth : features of the true boxes (proposals of the method ground-truth).
    texts : features of the distinct phrases.
    seed : of the drawing.

    Raises
    ------
    LocalizationError
        There is no phrase.
    MissingRows, FailedRows
        A region or phrase has no features.
    """
    if not phrases:
        raise LocalizationError(
            "the training split has no phrase with a box; `pipeline prepare entities`, `regions` "
            "and `scenes` make datasets with phrases"
        )
    keys = {phrase_key(phrase.phrase): None for phrase in phrases}
    phrase_row = {key: row for row, key in enumerate(keys)}
    numbers = true_regions(phrases)
    region_row: dict[str, int] = {}
    annotated: dict[tuple[int, int], None] = {}
    for phrase in phrases:
        for k in numbers[phrase.id]:
            region = region_row.setdefault(region_id(phrase.image, k), len(region_row))
            annotated.setdefault((region, phrase_row[phrase_key(phrase.phrase)]))
    region, phrase_of = np.array(list(annotated), np.int64).T
    drawn = _at_most(phrase_of, REGIONS_A_PHRASE, np.random.default_rng(seed))
    kept = np.unique(region[drawn])
    new_row = np.full(len(region_row), -1)
    new_row[kept] = np.arange(len(kept))
    linked = new_row[region] >= 0
    links_region, links_phrase = new_row[region[linked]], phrase_of[linked]
    order = drawn[np.lexsort((phrase_of[drawn], region[drawn]))]
    names, key_of = list(region_row), list(keys)
    region_ids = tuple(names[row] for row in kept)
    rows = loaded(FeatureRows(texts, key_of), IN_MEMORY_BYTES)
    return Pairs(
        region_ids,
        tuple(f"{names[region[at]]}~{key_of[phrase_of[at]]}" for at in order),
        new_row[region[order]],
        loaded(FeatureRows(truth, region_ids), IN_MEMORY_BYTES),
        RepeatedRows(rows, phrase_of[order]),
        Links(
            rows,
            phrase_of[order],
            Lists.of(links_region, links_phrase, len(kept)),
            Lists.of(links_phrase, links_region, len(key_of)),
        ),
    )


def _at_most(group: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rows of which no group has more than `most`, ascending; what is kept is drawn."""
    shuffled = rng.permutation(len(group))
    by_group = shuffled[np.argsort(group[shuffled], kind="stable")]
    counts = np.bincount(group)
    place = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(by_group[place < most])


def frame(
    manifest: Manifest,
    entries: Sequence[ImageEntry],
    phrases: Sequence[RegionPhrase],
    proposals: Proposals,
    most: int,
) -> Localized:
    """Return the queries of some images and their proposals, without embeddings yet.

    Parameters
    ----------
    manifest : of the dataset.
    entries : its images that are asked about.
    phrases : of the dataset; those of other images are left out.
    proposals : of the dataset.
    most : proposals of an image, the first ones.

    Raises
    ------
    ProposalError
        The proposals are of another dataset, or lack an image.
    """
    ids = [entry.id for entry in entries]
    proposals.require_images(manifest, ids)
    row = {image_id: number for number, image_id in enumerate(ids)}
    own = [phrase for phrase in phrases if phrase.image in row]
    texts = {phrase_key(phrase.phrase): plain_phrase(phrase.phrase) for phrase in own}
    phrase_row = {key: number for number, key in enumerate(texts)}
    size = {phrase.image: phrase.size for phrase in own if phrase.size}
    boxes = [proposals.boxes(image_id)[:most] for image_id in ids]
    truth = [np.array(phrase.boxes, np.float32).reshape(-1, 4) for phrase in own]
    none = np.zeros((0, 4), np.float32)
    return Localized(
        tuple(ids),
        np.array([size.get(e.id) or _size_of(manifest.image_root / e.file) for e in entries]),
        _starts([len(of) for of in boxes]),
        np.concatenate([none, *boxes]),
        np.zeros((sum(map(len, boxes)), 1), np.float32),
        tuple(texts.values()),
        np.zeros((len(texts), 1), np.float32),
        np.ones(len(texts), bool),
        tuple(phrase.id for phrase in own),
        np.array([row[phrase.image] for phrase in own], np.int64),
        np.array([phrase_row[phrase_key(phrase.phrase)] for phrase in own], np.int64),
        tuple("/".join(phrase.types) for phrase in own),
        _starts([len(of) for of in truth]),
        np.concatenate([none, *truth]),
        "cosine",
        {},
    )


def region_ids(localized: Localized) -> list[str]:
    """Return the row id of every proposal's features."""
    counts = np.diff(localized.first_region)
    return [
        region_id(image_id, k)
        for image_id, count in zip(localized.image_ids, counts, strict=True)
        for k in range(int(count))
    ]


def phrase_keys(localized: Localized) -> list[str]:
    """Return the row id of every phrase's features."""
    return [phrase_key(text) for text in localized.phrase_texts]


@dataclass(frozen=True, eq=False)
class HeldOutQueries:
    """The queries of a split, by which a training chooses its epoch or its ridges.

    Attributes
    ----------
    images, captions : features of the proposals and of the phrases.
    frame : the queries, without embeddings.
    """

    images: Rows
    captions: Rows
    frame: Localized

    @classmethod
    def of(cls, found: Localized, regions: FeatureSet, texts: FeatureSet) -> "HeldOutQueries":
        """Return the queries with features of their proposals and phrases.

        Raises
        ------
        LocalizationError
            There is no query, or not one proposal.
        MissingRows, FailedRows
            A proposal or a phrase has no features.
        """
        if not (found.query_ids and len(found.boxes)):
            raise LocalizationError(
                f"the validation split has {len(found.query_ids)} queries and {len(found.boxes)} "
                "proposals; at least one of each is needed to choose by"
            )
        return cls(
            loaded(FeatureRows(regions, region_ids(found)), IN_MEMORY_BYTES),
            loaded(FeatureRows(texts, phrase_keys(found)), IN_MEMORY_BYTES),
            found,
        )

    def digest(self) -> str:
        """Return a text that differs where features, boxes or queries do."""
        digest = hashlib.sha256(f"{self.images.digest()} {self.captions.digest()}".encode())
        found = self.frame
        for array in (found.boxes, found.first_region, found.truth, found.first_truth):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("\0".join(found.query_ids).encode())
        return digest.hexdigest()

    def figures(self, images: Features, captions: Features, similarity: str) -> dict[str, float]:
        """Return R@1, R@5 and R@10 of the queries in percent, and their sum as `rsum`."""
        found = replace(self.frame, regions=images, phrases=captions, similarity=similarity)
        first = rank(found, by_head(found)).first_hit
        recalls = {f"phrase_to_region_r{k}": 100.0 * float((first < k).mean()) for k in CUTOFFS}
        return {**recalls, "rsum": sum(recalls.values())}


def _starts(counts: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _size_of(path: Path) -> tuple[int, int]:
    """Return width and height of an upright photo; (1, 1) where there is none to be read."""
    try:
        return photo_size(path)
    except DatasetError:
        return 1, 1
