"""Made localizations: random boxes, embeddings with ties, queries with one or more true boxes."""

import numpy as np

from pipeline.regions.localization.localized import Localized


def random_boxes(rng: np.random.Generator, number: int) -> np.ndarray:
    """Return (number, 4) float32 boxes of whole pixels."""
    corner = rng.integers(0, 7, (number, 2))
    return np.hstack([corner, corner + rng.integers(3, 7, (number, 2))]).astype(np.float32)


def localized(
    images: int = 5, proposals: int = 9, phrases: int = 4, seed: int = 0, several: bool = True
) -> Localized:
    """Return a localization whose second image has no proposals; embeddings repeat."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, proposals + 1, images)
    counts[1:2] = 0
    few = rng.standard_normal((3, 4))  # so that scores tie
    regions = few[rng.integers(0, 3, counts.sum())]
    asked = [(i, p) for i in range(images) for p in range(phrases) if rng.random() < 0.7 or p == 0]
    number = rng.integers(1, 4, len(asked)) if several else np.ones(len(asked), int)
    said = rng.standard_normal((phrases, 4))
    return Localized(
        tuple(f"i{i}" for i in range(images)),
        np.full((images, 2), 20),
        np.concatenate([[0], np.cumsum(counts)]),
        random_boxes(rng, counts.sum()),
        (regions / np.linalg.norm(regions, axis=1, keepdims=True)).astype(np.float32),
        tuple(f"phrase {p}" for p in range(phrases)),
        (said / np.linalg.norm(said, axis=1, keepdims=True)).astype(np.float32),
        np.ones(phrases, bool),
        tuple(f"i{i}#p{p}" for i, p in asked),
        np.array([i for i, _ in asked]),
        np.array([p for _, p in asked]),
        tuple("people/other" if p == 0 else "other" for _, p in asked),
        np.concatenate([[0], np.cumsum(number)]),
        random_boxes(rng, number.sum()),
        "cosine",
        {"experiment": "made"},
    )
