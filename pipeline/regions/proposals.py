"""Proposals: class-agnostic boxes of likely objects, for every image of a dataset.

They are feature shards with images as rows: (most, 5) float32, x0 y0 x1 y1 and score, best first,
padded with zeros. Ids, failed rows, recipe, hashes, writing and resumption are those of all shards
(docs/format.md).
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.datasets.manifest import Manifest
from pipeline.regions import RegionError
from pipeline.regions.methods import Method
from pipeline.store.files import created_by
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import FeatureHeader

AXES = "row, proposal, x0_y0_x1_y1_score"
_KIND = "proposals"


def region_id(image_id: str, number: int) -> str:
    """Return the row id of proposal `number`, from 0, of an image: `<image id>@<k>`."""
    return f"{image_id}@{number}"


def image_of_region(region: str) -> tuple[str, int]:
    """Return image id and number from a region's id."""
    image_id, at, number = region.rpartition("@")
    if not (at and image_id and re.fullmatch("[0-9]{1,18}", number)):
        raise RegionError(f"{region!r} is not the id of a region; expected <image id>@<number>")
    return image_id, int(number)


class Proposals:
    """Proposals of all images of a dataset, in memory (20 bytes per box)."""

    def __init__(self, folder: str | Path) -> None:
        self.folder: Path = Path(folder)
        features = FeatureSet(folder)
        self.header: FeatureHeader = features.index.header
        if self.header.recipe.get("kind") != _KIND or self.header.axes != AXES:
            raise RegionError(
                f"{folder} holds rows of the recipe {self.header.recipe.get('name')!r}, not "
                "proposals; run `pipeline propose`"
            )
        # all images in file order, including those without proposals
        self.image_ids: Sequence[str] = features.ids
        # (images,) uint8; not 0 for an unreadable image
        self.status: npt.NDArray[np.uint8] = features.status
        crc32 = features.source_crc32.tolist()
        # of the image file of the proposals by image id; 0 if unknown
        self.source_crc32: dict[str, int] = dict(zip(self.image_ids, crc32, strict=True))
        self._rows = np.nan_to_num(features.read(features.ids, allow_failed=True))
        sizes = self._rows[..., 2:4] - self._rows[..., :2]
        self._counts: np.ndarray = (sizes > 0).all(-1).sum(1)
        self._row = {image_id: row for row, image_id in enumerate(self.image_ids)}

    def __len__(self) -> int:
        return int(self._counts.sum())

    def count(self, image_id: str) -> int:
        """Return the number of an image's proposals."""
        return int(self._counts[self._row_of(image_id)])

    def boxes(self, image_id: str) -> np.ndarray:
        """Return the boxes of an image, best first, (k, 4) float32; k may be 0."""
        row = self._row_of(image_id)
        return self._rows[row, : self._counts[row], :4].copy()

    def scores(self, image_id: str) -> np.ndarray:
        """Return the method's score of each box, (k,) float32, higher is better."""
        row = self._row_of(image_id)
        return self._rows[row, : self._counts[row], 4].copy()

    def region_ids(self, image_id: str) -> list[str]:
        """Return the row id of each box's features, in the order of `boxes`."""
        return [region_id(image_id, k) for k in range(self.count(image_id))]

    def require_images(self, manifest: Manifest, image_ids: Iterable[str]) -> None:
        """Check that these are proposals of a dataset and include all these images."""
        absent = [image_id for image_id in image_ids if image_id not in self._row]
        if absent or self.header.dataset != manifest.name:
            lacking = f" and lacks {len(absent)} of the images, first {absent[:3]}" * bool(absent)
            raise RegionError(
                f"{self.folder} has proposals of the dataset {self.header.dataset!r}{lacking}; "
                f"expected proposals of {manifest.name!r}: run `pipeline propose`"
            )

    def _row_of(self, image_id: str) -> int:
        if image_id not in self._row:
            raise RegionError(
                f"{self.folder} has no image {image_id!r}; it has proposals of "
                f"{len(self.image_ids)} images of the dataset {self.header.dataset!r}"
            )
        return self._row[image_id]


def read_proposals(path: str | Path) -> Proposals:
    """Load a folder of proposals, as `pipeline propose` wrote it.

    Parameters
    ----------
    path : str or Path. The folder.

    Returns
    -------
    Proposals
        By image id: `boxes`, (k, 4) float32, best first, as x0 y0 x1 y1 in pixels of the image,
        from 0, right and bottom exclusive; `scores`, (k,) float32; and `region_ids`, the rows of
        their features.

    Raises
    ------
    RegionError
        The shards hold other rows than proposals.
    ShardError
        Shards are missing or damaged.

    Examples
    --------
    >>> proposals = pipeline.read_proposals("data/proposals/mine/grid")
    >>> proposals.boxes("scene-00000").shape, proposals.region_ids("scene-00000")[0]
    ((50, 4), 'scene-00000@0')
    """
    return Proposals(path)


def proposals_header(method: Method, most: int, dataset: str) -> FeatureHeader:
    """Return the header of proposal shards of at most `most` boxes per row; a dtype of float32."""
    weights, weights_sha256 = method.model
    return FeatureHeader(
        recipe={"kind": _KIND, **method.recipe, "most": most},
        weights=weights,
        weights_sha256=weights_sha256,
        axes=AXES,
        dataset=dataset,
        row_shape=(most, 5),
        dtype="float32",
        created_by=created_by("numpy", "h5py", *method.packages),
    )


def proposal_row(boxes: np.ndarray, scores: np.ndarray, most: int) -> np.ndarray:
    """Return one row, (most, 5) float32: the first `most` boxes and scores, then zeros."""
    row = np.zeros((most, 5), np.float32)
    number = min(most, len(boxes))
    row[:number, :4], row[:number, 4] = boxes[:number], scores[:number]
    return row
