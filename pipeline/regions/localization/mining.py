"""Hard negative mining: proposals that a trained head ranks above a phrase's true boxes.

Wang et al. 2016, section 3.3: "for each unique phrase in the training set" the boxes "that are
closer to the phrase than the ground truth boxes", of which at most 50 are sampled. Our choices
where the paper is silent: proposals are those of the images with the phrase; they are closer than
the nearest of its true boxes there; and those that overlap one of these by half or more are
excluded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.datasets.phrases import RegionPhrase
from pipeline.heads.base import Head
from pipeline.heads.inputs.feature_rows import ArrayRows, FeatureRows, Features
from pipeline.heads.inputs.pairs import Lists
from pipeline.regions.boxes import iou
from pipeline.regions.localization.measures import IOU
from pipeline.regions.localization.sources import OpenSources
from pipeline.regions.methods import true_boxes, true_regions
from pipeline.regions.proposals import region_id
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.store.progress import Progress, no_progress
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.row_keys import RowNumbers

MINED_A_PHRASE = 50

_IMAGES = 32  # images per embedding batch


@dataclass(frozen=True, eq=False)
class MinedBoxes:
    """Hard negatives of phrases."""

    region_ids: tuple[str, ...]  # the distinct boxes
    of_phrase: Lists  # rows of `region_ids`, in the order of the phrases' keys
    count: int  # number of mined boxes before sampling, with repetitions


def mine(
    head: Head,
    phrases: Sequence[RegionPhrase],
    opened: OpenSources,
    *,
    seed: int,
    progress: Progress = no_progress,
) -> MinedBoxes:
    """Return the hard negatives of each distinct phrase: proposals ranked above its true boxes."""
    keys = list({phrase.key: None for phrase in phrases})
    proposals, most = opened.proposals, opened.most
    row = {key: number for number, key in enumerate(keys)}
    embedded = head.embed_captions(FeatureRows(opened.texts, keys))
    similarity = SIMILARITIES[head.similarity]
    of_image: dict[str, list[RegionPhrase]] = {}
    for phrase in phrases:
        of_image.setdefault(phrase.image, []).append(phrase)
    boxes, numbers = true_boxes(phrases), true_regions(phrases)
    nearer: list[list[str]] = [[] for _ in keys]
    progress(0, len(of_image), 0)
    looked_at = _with_embeddings(head, list(of_image), boxes, opened)
    for done, (image, candidates, true) in enumerate(looked_at, 1):
        progress(done, len(of_image), 0)
        if not len(candidates):
            continue
        regions_of: dict[int, set[int]] = {}
        for phrase in of_image[image]:
            regions_of.setdefault(row[phrase.key], set()).update(numbers[phrase.id])
        rows = np.array(list(regions_of))
        queries = similarity.prepare(embedded[rows])
        scores = similarity.between(similarity.prepare(candidates), queries)
        true_scores = similarity.between(similarity.prepare(true), queries)
        overlap = iou(proposals.boxes(image)[:most], boxes[image])
        for column, (phrase_row, region_numbers) in enumerate(regions_of.items()):
            chosen = sorted(region_numbers)
            limit = true_scores[chosen, column].max()
            # Above the best true box, and not itself a correct box of the phrase.
            hard = (scores[:, column] > limit) & (overlap[:, chosen].max(axis=1) < IOU)
            nearer[phrase_row] += [region_id(image, int(k)) for k in np.flatnonzero(hard)]
    return _sampled(nearer, seed)


def _sampled(nearer: Sequence[Sequence[str]], seed: int) -> MinedBoxes:
    """Return at most `MINED_A_PHRASE` of each phrase's boxes, sampled at random."""
    rng = np.random.default_rng(seed)
    number: dict[str, int] = {}
    phrase_of: list[int] = []
    values: list[int] = []
    for phrase, boxes in enumerate(nearer):
        chosen = np.arange(len(boxes))
        if len(boxes) > MINED_A_PHRASE:
            chosen = np.sort(rng.choice(len(boxes), MINED_A_PHRASE, replace=False))
        for at in chosen:
            phrase_of.append(phrase)
            values.append(number.setdefault(boxes[int(at)], len(number)))
    lists = Lists.of(_rows(phrase_of), _rows(values), len(nearer))
    return MinedBoxes(tuple(number), lists, sum(map(len, nearer)))


def _rows(values: Sequence[int]) -> RowNumbers:
    return np.array(values, np.int64)


def _with_embeddings(
    head: Head, images: Sequence[str], boxes: dict[str, np.ndarray], opened: OpenSources
) -> Iterator[tuple[str, Features, Features]]:
    """Yield each image with the embeddings of its proposals and of its true boxes."""
    for start in range(0, len(images), _IMAGES):
        part = images[start : start + _IMAGES]
        ids = [opened.proposals.region_ids(image)[: opened.most] for image in part]
        true_ids = [[region_id(image, k) for k in range(len(boxes[image]))] for image in part]
        candidates = _embedded(head, opened.regions, ids)
        true = _embedded(head, opened.truth, true_ids)
        yield from zip(part, candidates, true, strict=True)


def _embedded(head: Head, features: FeatureSet, ids: Sequence[Sequence[str]]) -> list[Features]:
    """Return the embeddings of each list of rows; (0, 1) for an empty list."""
    together = [region for of_image in ids for region in of_image]
    if not together:
        return [np.zeros((0, 1), np.float32) for _ in ids]
    rows = FeatureRows(features, together).take(np.arange(len(together)))
    embeddings = head.embed_images(ArrayRows(rows))
    return list(np.split(embeddings, np.cumsum([len(of_image) for of_image in ids])[:-1]))
