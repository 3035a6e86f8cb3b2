"""What a recipe says: everything that changes a feature, as typed data."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline.errors import PipelineError

PRECISIONS = ("float32", "tf32", "bf16", "fp16")
STORAGES = ("float32", "float16")


class RecipeError(PipelineError):
    """No such recipe, backbone, precision or storage type."""


@dataclass(frozen=True, slots=True)
class Resize:
    """How an image of any shape becomes the 8-bit canvas that crops are cut from.

    rule : "squash" to (size, size): nothing is cut off, the aspect ratio is lost.
           "shorter-side" to size, the longer by integer floor: the aspect ratio is kept.
    interpolation : between pixel centres, edges repeated; values are rounded to 8 bits.
    antialias : the filter widens with the scale when shrinking (Pillow, MATLAB's imresize).
           Without it, the four nearest pixels are mixed at any scale (skimage before 0.15, Caffe).
    """

    rule: Literal["squash", "shorter-side"]
    size: int
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        """Refuse the one combination that is not carried out."""
        if self.interpolation != "bilinear" and not self.antialias:
            raise RecipeError(f"{self.interpolation} without antialias is not known; use bilinear")


@dataclass(frozen=True, slots=True)
class Crop:
    """Which windows of the canvas the network sees, in this order.

    rule : "none" (the canvas itself), "centre" (what lies outside is lost), or "ten" (top left,
           top right, bottom left, bottom right, centre, then the mirror of each).
    size : side of the square window in pixels.
    centre_offset : integer rounding of half the margin for the centre window. "round" is
           torchvision's (half to even), "floor" Caffe's, "ceil" that of Klein's MATLAB code;
           they differ on odd margins only.
    """

    rule: Literal["none", "centre", "ten"]
    size: int
    centre_offset: Literal["round", "floor", "ceil"] = "round"


@dataclass(frozen=True, slots=True)
class Normalise:
    """(x / scale - mean) / std on 0-255 values, in float32 and in this order of operations.

    channels : their order in the network's input, in `mean` and in `std`.
    """

    scale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    channels: Literal["RGB", "BGR"] = "RGB"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one feature row is made from one image file.

    Attributes
    ----------
    name, backbone : as on the command line.
    weights : the weights that 'imagenet' means.
    decode : rule from file to 8-bit RGB; see `pipeline.images.decode`.
    resize, crop, normalise : from 8-bit RGB to the network's input.
    tap : the layer read, in torchvision's (or the package's) own naming.
    activation : the last operation before the tap, which fixes the range of the values.
    pool : "none" (the grid is kept) or "mean over cells"; of one crop's output.
    combine_crops : "none", or "mean" of the crops' outputs, after `activation` and `pool`.
    norm : of the finished row, after `combine_crops`: "none", or "l2" to length 1.
    shape, axes : of one row, and the names of all axes of the stored array.
    precision : arithmetic of the network, of `PRECISIONS`.
    storage : dtype of the stored row, of `STORAGES`.
    source : the paper or program whose features these are; it changes no feature.
    """

    name: str
    backbone: str
    weights: str
    resize: Resize
    crop: Crop
    normalise: Normalise
    tap: str
    activation: Literal["relu", "relu6", "none"]
    pool: Literal["none", "mean over cells"]
    combine_crops: Literal["none", "mean"]
    shape: tuple[int, ...]
    axes: str
    decode: str = "pillow, exif orientation applied, 16-bit / 257, convert('RGB')"
    norm: Literal["none", "l2"] = "none"
    precision: str = "float32"
    storage: str = "float32"
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return all that changes a feature as JSON values, less the weights in use."""
        values = asdict(self)
        del values["weights"], values["source"]
        return values

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row."""
        return math.prod(self.shape) * (2 if self.storage == "float16" else 4)
