"""True boxes of a dataset's phrases as proposals, for their features and upper bounds."""

from collections.abc import Iterable

import numpy as np

from pipeline.datasets.phrases import RegionPhrase


def true_boxes(phrases: Iterable[RegionPhrase]) -> dict[str, np.ndarray]:
    """Return the distinct boxes of each image's phrases, in order of occurrence.

    Parameters
    ----------
    phrases : iterable of RegionPhrase. Phrases of a dataset, in file order.

    Returns
    -------
    Image id to (k, 4) float32, k at least 1; only images with phrases.
    """
    found: dict[str, dict[tuple[float, ...], None]] = {}
    for phrase in phrases:
        boxes = found.setdefault(phrase.image, {})
        for box in phrase.boxes:
            boxes.setdefault(tuple(float(np.float32(value)) for value in box))
    return {image: np.array(list(boxes), np.float32) for image, boxes in found.items()}


def true_regions(phrases: Iterable[RegionPhrase]) -> dict[str, list[int]]:
    """Return the indices of each phrase's boxes in `true_boxes` of its image, by phrase id.

    Index k refers to the row `<image id>@<k>` of the method "ground-truth".
    """
    phrases = list(phrases)
    number = {
        image: {tuple(box): k for k, box in enumerate(boxes.tolist())}
        for image, boxes in true_boxes(phrases).items()
    }
    return {
        phrase.id: [
            number[phrase.image][tuple(float(np.float32(value)) for value in box)]
            for box in phrase.boxes
        ]
        for phrase in phrases
    }
