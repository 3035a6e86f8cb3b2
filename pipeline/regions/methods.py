"""Methods that propose boxes on a photo, by name; none of them learns from the dataset."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Found = tuple[np.ndarray, np.ndarray]
"""Boxes (k, 4) inside the photo, and scores (k,), best first; k may be 0."""


class Unproposable(Exception):
    """Why a method can say nothing about a photo, which is refused then."""


class Method(Protocol):
    """What `pipeline.regions.propose` asks of a method; it may be called from several threads."""

    @property
    def recipe(self) -> dict[str, Any]:
        """Name and settings: JSON values of all that changes a box."""

    @property
    def model(self) -> tuple[str, str]:
        """Name and SHA-256 of the trained model, or of the file that the boxes come from."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Installed packages whose versions are noted."""

    def __call__(self, image_id: str, pixels: np.ndarray) -> Found:
        """Propose boxes on a photo, (height, width, 3) uint8 RGB."""


NO_MODEL = "none", "0" * 64


@dataclass(frozen=True)
class KnownBoxes:
    """Boxes that are known beforehand: the true ones, or those of somebody's file.

    Attributes
    ----------
    recipe, model : as `Method` says.
    boxes, scores : by image id, best first; an image that is not there has none.
    sizes : (width, height) that an image must have, where the boxes say so.
    """

    recipe: dict[str, Any]
    model: tuple[str, str]
    boxes: Mapping[str, np.ndarray]
    scores: Mapping[str, np.ndarray]
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    packages: tuple[str, ...] = ()

    def __call__(self, image_id: str, pixels: np.ndarray) -> Found:
        """Return the boxes of an image.

        Raises
        ------
        Unproposable
            The photo has another size than the boxes were drawn for, or one leaves it.
        """
        height, width = pixels.shape[:2]
        if (wanted := self.sizes.get(image_id, (width, height))) != (width, height):
            raise Unproposable(
                f"the photo has {width} x {height} pixels, its boxes are of {wanted[0]} x "
                f"{wanted[1]}"
            )
        if image_id not in self.boxes:
            return np.zeros((0, 4), np.float32), np.zeros(0, np.float32)
        boxes = self.boxes[image_id]
        outside = (boxes[:, :2] < 0).any(1) | (boxes[:, 2:] > [width, height]).any(1)
        flat = (boxes[:, 2:] <= boxes[:, :2]).any(1)
        for fault, wrong in (("outside the photo", outside), ("without an area", flat)):
            if wrong.any():
                k = int(np.argmax(wrong))
                raise Unproposable(
                    f"box {k}, {boxes[k].tolist()}, is {fault} of {width} x {height} pixels"
                )
        return boxes, self.scores[image_id]


@dataclass(frozen=True)
class Grid:
    """A fixed set of boxes that looks at no photo: windows of several shapes, evenly spread.

    The whole photo comes first, then windows from large to small; a window overlaps its neighbours
    by half. It is the least that any other method must beat.
    """

    number: int
    packages: tuple[str, ...] = ()

    @property
    def recipe(self) -> dict[str, Any]:
        """Name and the windows' sizes as shares of the photo's."""
        return {"name": "grid", "windows": [list(size) for size in _GRID]}

    @property
    def model(self) -> tuple[str, str]:
        """There is none."""
        return NO_MODEL

    def __call__(self, image_id: str, pixels: np.ndarray) -> Found:
        """Return the first `number` windows, with scores that fall with their number."""
        height, width = pixels.shape[:2]
        shares = _grid_shares()[: self.number]
        boxes = shares * np.array([width, height, width, height])
        boxes = np.concatenate([np.floor(boxes[:, :2]), np.ceil(boxes[:, 2:])], axis=1)
        boxes = np.clip(boxes, 0, [width, height, width, height])
        return boxes.astype(np.float32), np.linspace(1, 0, len(boxes), endpoint=False)


# Width and height of the grid's windows as shares of the photo's.
_GRID = (
    (1.0, 1.0), (0.75, 0.75), (0.5, 1.0), (1.0, 0.5), (0.5, 0.75), (0.75, 0.5), (0.5, 0.5),
    (0.25, 0.75), (0.33, 0.5), (0.5, 0.33), (0.33, 0.33), (0.25, 0.5), (0.5, 0.25), (0.2, 0.2),
    (0.125, 0.125),
)  # fmt: skip


def _grid_shares() -> np.ndarray:
    """Return the windows as shares of the photo, (n, 4), x0 y0 x1 y1."""
    found = []
    for w, h in _GRID:
        across, down = (1 if side == 1 else round(2 * (1 / side - 1)) + 1 for side in (w, h))
        for y in np.linspace(0, 1 - h, down):
            found += [(x, y, x + w, y + h) for x in np.linspace(0, 1 - w, across)]
    return np.array(found)
