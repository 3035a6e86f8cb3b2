"""Schema of a recipe: all settings that change a feature, as typed data."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin

from pipeline.store.errors import PipelineError, UnknownName

PRECISIONS = ("float32", "tf32", "bf16", "fp16")
STORAGES = ("float32", "float16")

Pool = Literal["none", "mean over cells", "class token", "distillation token", "register tokens"]

PILLOW_RGB = "pillow, exif orientation applied, 16-bit / 257, convert('RGB')"
"""Decoding rule of every recipe of the catalogue; see `pipeline.images.decoding.decode`."""


class RecipeError(PipelineError):
    """Unknown recipe, backbone, layer, rule, precision or storage type."""


class UnknownRecipe(RecipeError, UnknownName):
    """No recipe or backbone has this name."""


def _require_known(said: Any) -> None:
    """Raise on an unsupported value, which would change a hash but no feature."""
    for field in fields(said):
        if get_origin(field.type) is Literal:
            _require_one_of(field.name, getattr(said, field.name), get_args(field.type))


def _require_one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise RecipeError(f"unknown {name} {value!r}; known: {', '.join(map(str, known))}")


@dataclass(frozen=True, slots=True)
class Resize:
    """Resizing of an image of any shape to the 8-bit canvas from which crops are cut.

    Attributes
    ----------
    rule : str. "squash" resizes to (size, size) and does not keep the aspect ratio; "shorter-side"
        resizes the shorter side to `size` and keeps the aspect ratio, with the longer side rounded
        down.
    size : int. Side in pixels; see `rule`.
    interpolation : str. "bilinear" or "bicubic", between pixel centres, with repeated edges; values
        are rounded to 8 bits.
    antialias : bool. Widen the filter with the scale when shrinking (Pillow, MATLAB's imresize).
        Otherwise the four nearest pixels are mixed at any scale (skimage before 0.15, Caffe).
    """

    rule: Literal["squash", "shorter-side"]
    size: int
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        """Raise on unsupported values."""
        _require_known(self)
        if self.interpolation != "bilinear" and not self.antialias:
            raise RecipeError(f"{self.interpolation} without antialias is unknown; use bilinear")


@dataclass(frozen=True, slots=True)
class Crop:
    """Windows of the canvas, each of which is an input of the network.

    Attributes
    ----------
    rule : str. "none", the whole canvas; "flip", the canvas, then its mirror image; "centre", the
        centre window; or "ten", the windows top left, top right, bottom left, bottom right and
        centre, then their mirror images in the same order.
    size : int. Side of the square window in pixels.
    centre_offset : str. Rounding of half the margin of the centre window: "round", half to even, as
        in torchvision; "floor", as in Caffe; "ceil", as in Klein's MATLAB code. They differ only
        for odd margins.
    """

    rule: Literal["none", "flip", "centre", "ten"]
    size: int
    centre_offset: Literal["round", "floor", "ceil"] = "round"

    def __post_init__(self) -> None:
        """Raise on unsupported values."""
        _require_known(self)

    @property
    def windows(self) -> int:
        """Number of windows per canvas."""
        return {"none": 1, "flip": 2, "centre": 1, "ten": 10}[self.rule]


@dataclass(frozen=True, slots=True)
class Normalise:
    """Normalisation (x / scale - mean) / std of values 0-255, in float32 and in this order.

    Attributes
    ----------
    scale : float. Divisor of the values.
    mean, std : tuple of 3 float. Mean and standard deviation of each channel.
    channels : str. "RGB" or "BGR", channel order of the network's input, `mean` and `std`.
    """

    scale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    channels: Literal["RGB", "BGR"] = "RGB"

    def __post_init__(self) -> None:
        """Raise on unsupported values."""
        _require_known(self)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one feature row is computed from one image file.

    Attributes
    ----------
    name, backbone : str. As on the command line; different names are different recipes.
    weights : str. The weights selected by "imagenet".
    decode : str. Rule from file to 8-bit RGB, a key of `pipeline.images.decoding.decode.RULES`.
    resize, crop, normalise : Resize, Crop, Normalise. Steps from 8-bit RGB to the network's input.
    tap : str. Name of the layer in torchvision (or its package), or another output of the network;
        see `pipeline.images.tap`.
    activation : str. Applied to the tap's output, and determines the range of the values. It has no
        effect on a tap that ends in it.
    pool : str. For the output of one crop: "none" (keep the grid), "mean over cells", or special
        tokens that a transformer puts before the patch tokens, which "none" drops.
    combine_crops : str. "none", or "mean" over the crops' outputs, after `activation` and `pool`.
    norm : str. Of the finished row, after `combine_crops`: "none", or "l2" to length 1.
    shape : tuple of int. Shape of one row; a network with another output shape is refused.
    axes : str. Axes of the stored array: "row, channel", "row, cell_y, cell_x, channel" or "row,
        token, channel".
    precision : str. Precision of the network, one of `PRECISIONS`.
    storage : str. Dtype of the stored row, one of `STORAGES`.
    source : str. Paper or program with these features; changes no feature.
    trained_on : tuple of str. Training datasets of the default weights, () if unknown; changes no
        feature.
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
        """Raise on unsupported values and contradictory fields.

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
                f"{self.name}: crops of {crop.size} pixels do not fit into images resized to "
                f"{resize.size}; resize to {crop.size} or more"
            )
        whole = crop.rule in ("none", "flip")
        if whole and (resize.rule, resize.size) != ("squash", crop.size):
            raise RecipeError(
                f"{self.name}: without a crop the network sees the whole image, which must be "
                f"squashed to the crop size, {crop.size}; it is resized by {resize.rule!r} to "
                f"{resize.size}"
            )
        if (crop.windows > 1) != (self.combine_crops == "mean"):
            raise RecipeError(
                f"{self.name}: combine_crops is {self.combine_crops!r} and the crop rule "
                f"{crop.rule!r}; several crops must be combined by their mean, a single one not at "
                "all"
            )

    def to_json(self) -> dict[str, Any]:
        """Return all that changes a feature as JSON values, except the weights in use."""
        values = asdict(self)
        del values["weights"], values["source"], values["trained_on"]
        return values

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row."""
        return math.prod(self.shape) * (2 if self.storage == "float16" else 4)
