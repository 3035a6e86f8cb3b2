"""Box geometry as a region feature: position and size in the image.

Features pooled from an image's map encode the content at a place, but hardly the extent of an
object; concatenated with them, the geometry lets a head learn typical sizes and positions. The five
numbers are those of Yu et al. 2016 (ECCV, "Modeling context in referring expressions").
"""

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.images.decoding.decode import to_rgb
from pipeline.regions.by_photo import ByPhoto
from pipeline.store.devices import AUTO
from pipeline.store.errors import WrongUsage
from pipeline.store.files import created_by
from pipeline.store.jobs.options import Compute
from pipeline.store.shards.format import FeatureHeader

BOX_GEOMETRY = "box-geometry"
_VALUES = ("x0 / width", "y0 / height", "x1 / width", "y1 / height", "share of the area", "1")


def box_geometry_features(dataset: str, storage: str, how: Compute) -> ByPhoto:
    """Return the definition of `box_geometry` as features, (6,) numbers from 0 to 1; no network."""
    processor = how.device in (AUTO, "cpu")
    used = str(how.weights), how.weights_prefix, how.engine
    if not processor or used != ("imagenet", None, Compute.engine):
        raise WrongUsage(
            f"{BOX_GEOMETRY} has no network; leave out `weights=...`, `device=...`, `engine=...`"
        )
    header = FeatureHeader(
        recipe={"name": BOX_GEOMETRY, "values": list(_VALUES), "shape": [len(_VALUES)]},
        weights="none",
        weights_sha256="0" * 64,
        axes="row, value",
        dataset=dataset,
        row_shape=(len(_VALUES),),
        dtype=storage,
        created_by=created_by("numpy", "h5py", "pillow"),
    )
    return ByPhoto(header, to_rgb, lambda: _rows)


def box_geometry(
    boxes: npt.NDArray[np.float64], width: int, height: int
) -> npt.NDArray[np.float32]:
    """Return (k, 6) float32 of boxes (k, 4) in pixels: corners and area as shares of it, 1."""
    corners = boxes / np.array([width, height, width, height])
    area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    return np.column_stack([corners, area, np.ones(len(boxes))]).astype(np.float32)


def _rows(image: Image.Image, boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    return box_geometry(boxes, image.width, image.height)
