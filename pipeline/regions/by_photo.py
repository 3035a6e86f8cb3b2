"""The definition of region features that are computed per image."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.images.decoding.decode import Rule
from pipeline.store.shards.format import FeatureHeader

RowsOf = Callable[[Image.Image, npt.NDArray[np.float64]], npt.NDArray[np.float32]]
"""Function from an image and (k, 4) boxes in its pixels to (k, dim) rows."""


@dataclass(frozen=True)
class ByPhoto:
    """Region features that are computed per image.

    Attributes
    ----------
    header : FeatureHeader. Header of the shards.
    rule : callable. Decoding rule of the images.
    prepare : callable. Returns the function that computes rows; called before the first rows.
    """

    header: FeatureHeader
    rule: Rule
    prepare: Callable[[], RowsOf]
