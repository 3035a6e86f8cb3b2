"""What a kind of region features computed an image at a time consists of."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.images.decoding.decode import Rule
from pipeline.shards.format import FeatureHeader

RowsOf = Callable[[Image.Image, npt.NDArray[np.float64]], npt.NDArray[np.float32]]
"""From an image and (k, 4) boxes in its pixels to their (k, dim) rows."""


@dataclass(frozen=True)
class ByPhoto:
    """A kind of region features.

    Attributes
    ----------
    header : of the shards.
    rule : by which images are decoded.
    prepare : returns the function that computes rows; called when rows are first computed.
    """

    header: FeatureHeader
    rule: Rule
    prepare: Callable[[], RowsOf]
