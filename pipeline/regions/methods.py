"""Proposal methods by name; none of them is trained on the dataset."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.datasets.phrases import RegionPhrase
from pipeline.images.decoding.decode import UnusableImage
from pipeline.store.shards.format import REFUSED

ScoredBoxes = tuple[np.ndarray, np.ndarray]
"""Boxes (k, 4) inside the image and scores (k,), best first; k may be 0."""


@dataclass(frozen=True)
class Method:
    """A proposal method."""

    recipe: dict[str, Any]  # name and settings: JSON values of everything that determines boxes
    # Boxes of an image by its id and its (height, width, 3) uint8 RGB; may raise `UnusableImage`.
    # Thread-safe, since images are processed in parallel.
    propose: Callable[[str, np.ndarray], ScoredBoxes]
    # Name and SHA-256 of the trained model, or of the file that the boxes come from.
    model: tuple[str, str] = ("none", "0" * 64)
    packages: tuple[str, ...] = ()  # installed packages whose versions are recorded
    boxes: Mapping[str, np.ndarray] | None = None  # by image id, if they are known in advance


def known_boxes(
    name: str,
    file: tuple[str, str],  # name and SHA-256
    boxes: Mapping[str, np.ndarray],
    scores: Mapping[str, np.ndarray],
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> Method:
    """Return proposals that are known in advance: true boxes, or those of a file.

    By image id: boxes (k, 4), best first, none of a missing image; scores (k,); and the required
    width and height, if known. They must be inside the image.
    """

    def propose(image_id: str, pixels: np.ndarray) -> ScoredBoxes:
        height, width = pixels.shape[:2]
        expected = (sizes or {}).get(image_id, (width, height))
        if expected != (width, height):
            raise UnusableImage(
                f"the photo has {width} x {height} pixels, its boxes are of {expected[0]} x "
                f"{expected[1]}",
                REFUSED,
            )
        if image_id not in boxes:
            return np.zeros((0, 4), np.float32), np.zeros(0, np.float32)
        of_image = boxes[image_id]
        outside = (of_image[:, :2] < 0).any(1) | (of_image[:, 2:] > [width, height]).any(1)
        flat = (of_image[:, 2:] <= of_image[:, :2]).any(1)
        for fault, wrong in (("outside the photo", outside), ("without an area", flat)):
            if wrong.any():
                k = int(np.argmax(wrong))
                raise UnusableImage(
                    f"box {k}, {of_image[k].tolist()}, is {fault} of {width} x {height} pixels",
                    REFUSED,
                )
        return of_image, scores[image_id]

    return Method({"name": name}, propose, file, boxes=boxes)


def grid(number: int) -> Method:
    """Return at most `number` fixed windows on a regular grid, independent of the image.

    The baseline: the whole image is first, followed by windows of several shapes from large to
    small; neighbours overlap by half. Scores descend.
    """
    shares = _grid_shares()[:number]

    def propose(image_id: str, pixels: np.ndarray) -> ScoredBoxes:
        height, width = pixels.shape[:2]
        boxes = shares * np.array([width, height, width, height])
        boxes = np.concatenate([np.floor(boxes[:, :2]), np.ceil(boxes[:, 2:])], axis=1)
        boxes = np.clip(boxes, 0, [width, height, width, height])
        return boxes.astype(np.float32), np.linspace(1, 0, len(boxes), endpoint=False)

    return Method({"name": "grid", "windows": [list(size) for size in _GRID]}, propose)


# Width and height of the grid's windows as shares of the image's.
_GRID = (
    (1.0, 1.0), (0.75, 0.75), (0.5, 1.0), (1.0, 0.5), (0.5, 0.75), (0.75, 0.5), (0.5, 0.5),
    (0.25, 0.75), (0.33, 0.5), (0.5, 0.33), (0.33, 0.33), (0.25, 0.5), (0.5, 0.25), (0.2, 0.2),
    (0.125, 0.125),
)  # fmt: skip


def _grid_shares() -> np.ndarray:
    """Return the windows as shares of the image, (n, 4), x0 y0 x1 y1."""
    windows = []
    for w, h in _GRID:
        across, down = (1 if side == 1 else round(2 * (1 / side - 1)) + 1 for side in (w, h))
        for y in np.linspace(0, 1 - h, down):
            windows += [(x, y, x + w, y + h) for x in np.linspace(0, 1 - w, across)]
    return np.array(windows)


def true_boxes(phrases: Iterable[RegionPhrase]) -> dict[str, np.ndarray]:
    """Return the distinct boxes (k, 4) float32 of each image's phrases, in order of occurrence.

    An image without phrases is missing, so k is at least 1.
    """
    boxes_of: dict[str, dict[tuple[float, ...], None]] = {}
    for phrase in phrases:
        boxes = boxes_of.setdefault(phrase.image, {})
        for box in phrase.boxes:
            boxes.setdefault(_as_float32(box))
    return {image: np.array(list(boxes), np.float32) for image, boxes in boxes_of.items()}


def true_regions(phrases: Iterable[RegionPhrase]) -> dict[str, list[int]]:
    """Return the indices of each phrase's boxes in `true_boxes` of its image, by phrase id.

    Index k is the row `<image id>@<k>` of the method "ground-truth".
    """
    phrases = list(phrases)
    number = {
        image: {tuple(box): k for k, box in enumerate(boxes.tolist())}
        for image, boxes in true_boxes(phrases).items()
    }
    return {
        phrase.id: [number[phrase.image][_as_float32(box)] for box in phrase.boxes]
        for phrase in phrases
    }


def _as_float32(box: Iterable[float]) -> tuple[float, ...]:
    # Boxes are compared as the features' shards store them.
    return tuple(float(np.float32(value)) for value in box)
