"""What a recipe says: everything that changes a feature, as typed data."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin

from pipeline.errors import PipelineError, UnknownName

PRECISIONS = ("float32", "tf32", "bf16", "fp16")
STORAGES = ("float32", "float16")

Pool = Literal["none", "mean over cells", "class token", "distillation token", "register tokens"]

PILLOW_RGB = "pillow, exif orientation applied, 16-bit / 257, convert('RGB')"
"""The decoding rule of every recipe of the catalogue; see `pipeline.images.decoding.decode`."""


class RecipeError(PipelineError):
    """No such recipe, backbone, layer, rule, precision or storage type."""


class UnknownRecipe(RecipeError, UnknownName):
    """No recipe or backbone has this name."""


def _require_known(said: Any) -> None:
    """Refuse a value that no code carries out, which would change a hash and no feature."""
    for field in fields(said):
        if get_origin(field.type) is Literal:
            _require_one_of(field.name, getattr(said, field.name), get_args(field.type))


def _require_one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise RecipeError(f"{name} {value!r} is not known; known are {', '.join(map(str, known))}")


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
        """Refuse what is not carried out."""
        _require_known(self)
        if self.interpolation != "bilinear" and not self.antialias:
            raise RecipeError(f"{self.interpolation} without antialias is not known; use bilinear")


@dataclass(frozen=True, slots=True)
class Crop:
    """Which windows of the canvas the network sees, in this order.

    rule : "none" (the canvas itself), "flip" (the canvas, then its mirror), "centre" (what lies
           outside is lost), or "ten" (top left, top right, bottom left, bottom right, centre, then
           the mirror of each).
    size : side of the square window in pixels.
    centre_offset : integer rounding of half the margin for the centre window. "round" is
           torchvision's (half to even), "floor" Caffe's, "ceil" that of Klein's MATLAB code;
           they differ on odd margins only.
    """

    rule: Literal["none", "flip", "centre", "ten"]
    size: int
    centre_offset: Literal["round", "floor", "ceil"] = "round"

    def __post_init__(self) -> None:
        """Refuse what is not carried out."""
        _require_known(self)

    @property
    def windows(self) -> int:
        """Number of windows that are cut from a canvas."""
        return {"none": 1, "flip": 2, "centre": 1, "ten": 10}[self.rule]


@dataclass(frozen=True, slots=True)
class Normalise:
    """(x / scale - mean) / std on 0-255 values, in float32 and in this order of operations.

    channels : their order in the network's input, in `mean` and in `std`.
    """

    scale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    channels: Literal["RGB", "BGR"] = "RGB"

    def __post_init__(self) -> None:
        """Refuse what is not carried out."""
        _require_known(self)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one feature row is made from one image file.

    Attributes
    ----------
    name, backbone : as on the command line; two names are two recipes.
    weights : the weights that 'imagenet' means.
    decode : the rule from file to 8-bit RGB, a key of `pipeline.images.decoding.decode.RULES`.
    resize, crop, normalise : from 8-bit RGB to the network's input.
    tap : the layer that is read, as torchvision (or the package) names it, or another output of
        the network; see `pipeline.images.tap`.
    activation : applied to what the tap gives. It fixes the range of the values; a tap that ends
        in it gives the same with it and without.
    pool : of one crop's output: "none" (the grid is kept), "mean over cells", or the tokens of
        that name that a transformer puts before those of the patches, which "none" leaves out.
    combine_crops : "none", or "mean" of the crops' outputs, after `activation` and `pool`.
    norm : of the finished row, after `combine_crops`: "none", or "l2" to length 1.
    shape : of one row. axes : names of all axes of the stored array: "row, channel",
        "row, cell_y, cell_x, channel" or "row, token, channel". A network whose rows are others is
        refused.
    precision : arithmetic of the network, of `PRECISIONS`.
    storage : dtype of the stored row, of `STORAGES`.
    source : the paper or program whose features these are; it changes no feature.
    trained_on : names of the datasets that its own weights were trained on, () where it is not
        known; it changes no feature.
    """

    name: str
    backbone: str
    weights: str
    resize: Resize
    crop: Crop
    normalise: Normalise
    tap: str
    activation: Literal["relu", "relu6", "none"]
    pool: Pool
    combine_crops: Literal["none", "mean"]
    shape: tuple[int, ...]
    axes: str
    decode: str = PILLOW_RGB
    norm: Literal["none", "l2"] = "none"
    precision: str = "float32"
    storage: str = "float32"
    source: str = ""
    trained_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is not carried out, and fields that contradict each other.

        Raises
        ------
        RecipeError
        """
        _require_known(self)
        _require_one_of("precision", self.precision, PRECISIONS)
        _require_one_of("storage", self.storage, STORAGES)
        crop, resize = self.crop, self.resize
        if crop.size > resize.size:
            raise RecipeError(
                f"{self.name}: crops of {crop.size} pixels do not fit into pictures resized to "
                f"{resize.size}; resize to {crop.size} or more"
            )
        whole = crop.rule in ("none", "flip")
        if whole and (resize.rule, resize.size) != ("squash", crop.size):
            raise RecipeError(
                f"{self.name}: without a crop the network sees the whole picture, which must be "
                f"squashed to the crop's size, {crop.size}; it is resized by {resize.rule!r} to "
                f"{resize.size}"
            )
        if (crop.windows > 1) != (self.combine_crops == "mean"):
            raise RecipeError(
                f"{self.name}: combine_crops is {self.combine_crops!r} and the crop rule "
                f"{crop.rule!r}; several crops are combined by their mean, a single one is not "
                "combined"
            )

    def to_json(self) -> dict[str, Any]:
        """Return all that changes a feature as JSON values, less the weights in use."""
        values = asdict(self)
        del values["weights"], values["source"], values["trained_on"]
        return values

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row."""
        return math.prod(self.shape) * (2 if self.storage == "float16" else 4)
