"""The queries of a split: phrases, their images, and the proposals to choose from."""

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.phrases import RegionPhrase, photo_size
from pipeline.heads.base import Head
from pipeline.heads.inputs.feature_rows import FeatureRows, Features, Rows, loaded
from pipeline.heads.inputs.pairs import IN_MEMORY_BYTES
from pipeline.regions import RegionError
from pipeline.regions.localization.evaluate_localization import CUTOFFS
from pipeline.regions.localization.localized import Localized
from pipeline.regions.localization.measures import by_head, rank
from pipeline.regions.localization.sources import OpenSources


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of some images, with the features of their proposals and phrases."""

    images: Rows  # features of the proposals
    captions: Rows  # features of the phrases
    frame: Localized  # the queries, without embeddings

    @classmethod
    def of(
        cls,
        opened: OpenSources,
        split: str,
        *,
        images: int | None = None,
        left_out: Container[str] = (),
    ) -> "Queries":
        """Return the queries of a split, of its first `images` images (None: all), without some."""
        entries = [e for e in opened.manifest.select(split)[:images] if e.id not in left_out]
        ids = [entry.id for entry in entries]
        opened.proposals.require_images(opened.manifest, ids)
        row = {image_id: number for number, image_id in enumerate(ids)}
        phrases = [phrase for phrase in opened.phrases(split) if phrase.image in row]
        keys = [phrase.key for phrase in phrases]
        texts = {key: phrase.plain for key, phrase in zip(keys, phrases, strict=True)}
        phrase_row = {key: number for number, key in enumerate(texts)}
        boxes = [opened.proposals.boxes(image_id)[: opened.most] for image_id in ids]
        truth = [np.array(phrase.boxes, np.float32).reshape(-1, 4) for phrase in phrases]
        none = np.zeros((0, 4), np.float32)
        frame = Localized(
            image_ids=tuple(ids),
            sizes=_sizes(opened.manifest.image_root, entries, phrases),
            first_region=_starts(boxes),
            boxes=np.concatenate([none, *boxes]),
            regions=np.zeros((0, 1), np.float32),
            phrase_texts=tuple(texts.values()),
            phrases=np.zeros((0, 1), np.float32),
            known=np.ones(len(texts), bool),
            query_ids=tuple(phrase.id for phrase in phrases),
            query_image=np.array([row[phrase.image] for phrase in phrases], np.int64),
            query_phrase=np.array([phrase_row[key] for key in keys], np.int64),
            query_types=tuple("/".join(phrase.types) for phrase in phrases),
            first_truth=_starts(truth),
            truth=np.concatenate([none, *truth]),
            similarity="cosine",
            provenance={},
        )
        listed = [opened.proposals.region_ids(image_id)[: opened.most] for image_id in ids]
        regions = [region for of_image in listed for region in of_image]
        return cls(FeatureRows(opened.regions, regions), FeatureRows(opened.texts, [*texts]), frame)

    def in_memory(self) -> "Queries":
        """Return the queries for model selection, with features in memory if they fit."""
        number, boxes = len(self.frame.query_ids), len(self.frame.boxes)
        if not (number and boxes):
            raise RegionError(
                f"the validation split has {number} queries and {boxes} proposals; at least one of "
                "each is needed for model selection"
            )
        sides = (self.images, self.captions)
        images, captions = (
            loaded(rows, IN_MEMORY_BYTES) if isinstance(rows, FeatureRows) else rows
            for rows in sides
        )
        return replace(self, images=images, captions=captions)

    def embedded(self, head: Head) -> Localized:
        """Return the queries with the embeddings of a trained head."""
        regions = np.zeros((0, 1), np.float32)
        if len(self.images):
            regions = head.embed_images(self.images)
        phrases = head.embed_captions(self.captions)
        return replace(self.frame, regions=regions, phrases=phrases, similarity=head.similarity)

    def digest(self) -> str:
        """Return a digest of features, boxes and queries."""
        digest = hashlib.sha256(f"{self.images.digest()} {self.captions.digest()}".encode())
        frame = self.frame
        for array in (frame.boxes, frame.first_region, frame.truth, frame.first_truth):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("\0".join(frame.query_ids).encode())
        return digest.hexdigest()

    def figures(
        self, images: Features, captions: Features, similarity: str, with_map: bool = False
    ) -> dict[str, float]:
        """Return R@1, R@5 and R@10 of the queries in percent, and their sum as `rsum`."""
        embedded = replace(self.frame, regions=images, phrases=captions, similarity=similarity)
        first = rank(embedded, by_head(embedded)).first_hit
        recalls = {f"phrase_to_region_r{k}": 100.0 * float((first < k).mean()) for k in CUTOFFS}
        return {**recalls, "rsum": sum(recalls.values())}


def _starts(lists: Sequence[np.ndarray]) -> np.ndarray:
    """Return the start of each list in their concatenation, and its end."""
    return np.concatenate([[0], np.cumsum([len(items) for items in lists])]).astype(np.int64)


def _sizes(
    root: Path, entries: Sequence[ImageEntry], phrases: Sequence[RegionPhrase]
) -> np.ndarray:
    """Return width and height of each image, (images, 2)."""
    size = {phrase.image: phrase.size for phrase in phrases if phrase.size}
    return np.array([size.get(entry.id) or _size_of(root / entry.file) for entry in entries])


def _size_of(path: Path) -> tuple[int, int]:
    """Return width and height of an upright image; (1, 1) if it cannot be read."""
    try:
        return photo_size(path)
    except DatasetError:
        return 1, 1
