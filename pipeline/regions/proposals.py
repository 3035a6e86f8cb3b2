"""Proposals: class-agnostic boxes of likely objects, for every image of a dataset.

They are feature shards with images as rows: (most, 5) float32, x0 y0 x1 y1 and score, best first,
padded with zeros. Ids, failed rows, recipe, hashes, writing and resumption are those of all shards
(docs/format.md).
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.datasets.manifest import Manifest
from pipeline.regions import RegionError
from pipeline.store.files import created_by
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import FeatureHeader

AXES = "row, proposal, x0_y0_x1_y1_score"
_KIND = "proposals"


def region_id(image_id: str, number: int) -> str:
    """Return the row id of proposal `number`, from 0, of an image: `<image id>@<k>`."""
    return f"{image_id}@{number}"


def image_of_region(region: str) -> tuple[str, int]:
    """Return image id and number from a region's id.

    Raises
    ------
    RegionError
        It is not the id of a region.
    """
    image_id, at, number = region.rpartition("@")
    if not (at and image_id and re.fullmatch("[0-9]{1,18}", number)):
        raise RegionError(f"{region!r} is not the id of a region; expected <image id>@<number>")
    return image_id, int(number)


class Proposals:
    """Proposals of all images of a dataset, in memory (20 bytes per box).

    Attributes
    ----------
    folder : Path. Folder of the shards.
    header : FeatureHeader. Header of the shards, with recipe, hash and dataset.
    image_ids : sequence of str. Ids of all images in file order, including those without proposals.
    status : (images,) uint8. 0, or the status of an unreadable image.
    source_crc32 : mapping of str to int. CRC-32 of the image file of the proposals by image id; 0
        if unknown.
    """

    def __init__(self, folder: str | Path) -> None:
        """Load the proposals.

        Raises
        ------
        RegionError
            The shards have other contents.
        ShardError
            Shards are missing or damaged.
        """
        self.folder: Path = Path(folder)
        features = FeatureSet(folder)
        self.header: FeatureHeader = features.index.header
        if self.header.recipe.get("kind") != _KIND or self.header.axes != AXES:
            raise RegionError(
                f"{folder} holds rows of the recipe {self.header.recipe.get('name')!r}, not "
                "proposals; run `pipeline propose`"
            )
        self.image_ids: Sequence[str] = features.ids
        self.status: npt.NDArray[np.uint8] = features.status
        crc32 = features.source_crc32.tolist()
        self.source_crc32: dict[str, int] = dict(zip(self.image_ids, crc32, strict=True))
        self._rows = np.nan_to_num(features.read(features.ids, allow_failed=True))
        sizes = self._rows[..., 2:4] - self._rows[..., :2]
        self._counts: np.ndarray = (sizes > 0).all(-1).sum(1)
        self._row = {image_id: row for row, image_id in enumerate(self.image_ids)}

    def __len__(self) -> int:
        """Number of proposals of all images."""
        return int(self._counts.sum())

    def count(self, image_id: str) -> int:
        """Return the number of an image's proposals; see `boxes`."""
        return int(self._counts[self._row_of(image_id)])

    def boxes(self, image_id: str) -> np.ndarray:
        """Return the boxes of an image, best first, (k, 4) float32; k may be 0.

        Raises
        ------
        RegionError
            There are no proposals for the image.
        """
        row = self._row_of(image_id)
        return self._rows[row, : self._counts[row], :4].copy()

    def scores(self, image_id: str) -> np.ndarray:
        """Return the method's score of each box, (k,) float32, higher is better; see `boxes`."""
        row = self._row_of(image_id)
        return self._rows[row, : self._counts[row], 4].copy()

    def region_ids(self, image_id: str) -> list[str]:
        """Return the row id of each box's features, in the order of `boxes`."""
        return [region_id(image_id, k) for k in range(self.count(image_id))]

    def require_images(self, manifest: Manifest, image_ids: Iterable[str]) -> None:
        """Check that these are proposals of a dataset and include all these images.

        Raises
        ------
        RegionError
            They are of another dataset, or of an earlier version without some of the images.
        """
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

    Raises
    ------
    RegionError, ShardError
        See `Proposals`.

    Examples
    --------
    >>> proposals = pipeline.read_proposals("data/proposals/mine/grid")
    >>> proposals.boxes("scene-00000").shape, proposals.region_ids("scene-00000")[0]
    ((50, 4), 'scene-00000@0')
    """
    return Proposals(path)


def proposals_header(
    recipe: dict[str, Any],
    most: int,
    dataset: str,
    weights: str = "none",
    weights_sha256: str = "0" * 64,
    packages: Sequence[str] = (),
) -> FeatureHeader:
    """Return the header of proposal shards.

    Parameters
    ----------
    recipe : dict. Name and settings of the method, as JSON values.
    most : int. Maximum number of boxes in a row.
    dataset : str. Name of the dataset.
    weights, weights_sha256 : str. Name and SHA-256 of the method's trained model or box file.
    packages : sequence of str. Installed packages of the method, whose versions are recorded.
    """
    return FeatureHeader(
        recipe={"kind": _KIND, **recipe, "most": most},
        weights=weights,
        weights_sha256=weights_sha256,
        axes=AXES,
        dataset=dataset,
        row_shape=(most, 5),
        dtype="float32",
        created_by=created_by("numpy", "h5py", *packages),
    )


def proposal_row(boxes: np.ndarray, scores: np.ndarray, most: int) -> np.ndarray:
    """Return one row, (most, 5) float32: the first `most` boxes and scores, then zeros."""
    row = np.zeros((most, 5), np.float32)
    number = min(most, len(boxes))
    row[:number, :4], row[:number, 4] = boxes[:number], scores[:number]
    return row
