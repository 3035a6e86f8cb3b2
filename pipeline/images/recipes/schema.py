"""Schema of a recipe: all settings that change a feature, as typed data."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin

from pipeline.store.devices import DTYPES as STORAGES
from pipeline.store.devices import PRECISIONS
from pipeline.store.errors import PipelineError

Pool = Literal[
    "none", "mean over cells", "max over cells", "all tokens", "class token", "distillation token",
    "register tokens",
]  # fmt: skip

PILLOW_RGB = "pillow, exif orientation applied, 16-bit / 257, convert('RGB')"
"""Decoding rule of every recipe of the catalogue; see `pipeline.images.decoding.decode`."""


class RecipeError(PipelineError):
    """A recipe with contradictory fields, or an unsupported layer, rule, precision or storage."""


def _require_known(instance: Any) -> None:
    """Raise on an unsupported value, which would change a hash but no feature."""
    for field in fields(instance):
        if get_origin(field.type) is Literal:
            _require_one_of(field.name, getattr(instance, field.name), get_args(field.type))


def _require_one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise RecipeError(f"unknown {name} {value!r}; known: {', '.join(map(str, choices))}")


@dataclass(frozen=True, slots=True)
class Resize:
    """Resizing of an image of any shape to the 8-bit canvas from which crops are cut.

    Examples
    --------
    >>> pipeline.Resize("shorter-side", 256, "bicubic").antialias
    True
    """

    rule: Literal["squash", "shorter-side"]
    """"squash" resizes to (size, size) and does not keep the aspect ratio; "shorter-side" resizes
    the shorter side to `size` and keeps it, with the longer side rounded down."""
    size: int
    """Side in pixels."""
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """Between pixel centres, with repeated edges; values are rounded to 8 bits."""
    antialias: bool = True
    """Widen the filter with the scale when shrinking (Pillow, MATLAB's imresize). Otherwise the
    four nearest pixels are mixed at any scale (skimage before 0.15, Caffe)."""

    def __post_init__(self) -> None:
        """Raise on unsupported values."""
        _require_known(self)
        if self.interpolation != "bilinear" and not self.antialias:
            raise RecipeError(f"{self.interpolation} without antialias is unknown; use bilinear")


@dataclass(frozen=True, slots=True)
class Crop:
    """Windows of the canvas, each of which is an input of the network.

    Examples
    --------
    >>> pipeline.Crop("ten", 224).windows
    10
    """

    rule: Literal["none", "flip", "centre", "ten"]
    """"none", the whole canvas; "flip", the canvas, then its mirror image; "centre", the centre
    window; or "ten", the windows top left, top right, bottom left, bottom right and centre, then
    their mirror images in the same order."""
    size: int
    """Side of the square window in pixels."""
    centre_offset: Literal["round", "floor", "ceil"] = "round"
    """Rounding of half the margin of the centre window: "round", half to even, as in torchvision;
    "floor", as in Caffe; "ceil", as in Klein's MATLAB code. They differ only for odd margins."""

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

    Examples
    --------
    >>> pipeline.Normalise(255.0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)).channels
    'RGB'
    """

    scale: float
    """Divisor of the values."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    channels: Literal["RGB", "BGR"] = "RGB"
    """Channel order of the network's input, of `mean` and of `std`."""

    def __post_init__(self) -> None:
        """Raise on unsupported values."""
        _require_known(self)
        if not all(value > 0 for value in (self.scale, *self.std)):
            raise RecipeError(
                f"the scale {self.scale} and the standard deviations {self.std} divide the values; "
                "expected numbers above 0"
            )


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Preprocessing of a decoded image into the input of a network.

    Examples
    --------
    >>> pipeline.Preprocessing(
    ...     pipeline.Resize("shorter-side", 256),
    ...     pipeline.Crop("centre", 224),
    ...     pipeline.Normalise(255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ... ).crop.size
    224
    """

    resize: Resize
    crop: Crop
    normalise: Normalise

    @classmethod
    def spelled(
        cls,
        usual: "Preprocessing | Recipe",
        resize: str | None = None,
        crop: str | None = None,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        channels: str | None = None,
    ) -> "Preprocessing":
        """Return `usual` with the parts that are passed, as strings of the command line.

        Parameters
        ----------
        usual : Preprocessing or Recipe. Values of the parts that are not passed.
        resize : str or None. "[squash:]PIXELS[:bilinear|:bicubic]", otherwise of the shorter side.
        crop : str or None. "[centre:|ten:]PIXELS", or "none" or "flip" for the whole canvas.
        mean, std : three floats, or none. Of values from 0 to 1.
        channels : str or None. "RGB" or "BGR".
        """
        found, window, norm = usual.resize, usual.crop, usual.normalise
        if resize is not None:
            rule, size, filtered = _parts(resize, r"(squash:)?(\d+)(?::(\w+))?", "resize")
            interpolation: Any = filtered or found.interpolation
            found = Resize("squash" if rule else "shorter-side", int(size), interpolation)
        if crop in ("none", "flip"):
            window = Crop(crop, found.size)  # type: ignore[arg-type]
        elif crop is not None:
            kind, size = _parts(crop, r"(centre:|ten:)?(\d+)", "crop")
            window = Crop("ten" if kind == "ten:" else "centre", int(size), window.centre_offset)
        if mean or std or channels:
            # Of the usual values, in the units of values from 0 to 1.
            share = 255.0 / norm.scale
            means: Any = tuple(mean) or tuple(value / share for value in norm.mean)
            stds: Any = tuple(std) or tuple(value / share for value in norm.std)
            norm = Normalise(255.0, means, stds, channels or norm.channels)  # type: ignore[arg-type]
        return cls(found, window, norm)


def _parts(text: str, pattern: str, what: str) -> tuple[str, ...]:
    if (match := re.fullmatch(pattern, text)) is None:
        forms = {"resize": "[squash:]PIXELS[:bicubic]", "crop": "[ten:]PIXELS, none or flip"}
        raise RecipeError(f"the {what} {text!r} is not of the form {forms[what]}")
    return tuple(group or "" for group in match.groups())


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one feature row is computed from one image file."""

    name: str
    """As on the command line; different names are different recipes."""
    backbone: str
    weights: str
    """The weights selected by "imagenet"."""
    resize: Resize
    crop: Crop
    normalise: Normalise
    tap: str
    """Name of the layer in torchvision (or its package), or another output of the network."""
    activation: Literal["relu", "relu6", "none"]
    """Applied to the tap's output, and determines the range of the values. It has no effect on a
    tap that ends in it."""
    pool: Pool
    """For the output of one crop: "none" (keep the grid), the mean or maximum over cells, or
    tokens: all, or the special ones that a transformer puts before the patch tokens, which "none"
    and the reductions drop."""
    combine_crops: Literal["none", "mean"]
    """Mean over the crops' outputs, after `activation` and `pool`."""
    shape: tuple[int, ...]
    """Shape of one row; a network with another output shape is refused."""
    axes: str
    """"row, channel", "row, cell_y, cell_x, channel" or "row, token, channel"."""
    decode: str = PILLOW_RGB
    """Rule from file to 8-bit RGB, a key of `pipeline.images.decoding.decode.RULES`."""
    norm: Literal["none", "l2"] = "none"
    """Of the finished row, after `combine_crops`: "l2" is length 1."""
    precision: str = "float32"
    """Precision of the network, one of `PRECISIONS`."""
    storage: str = "float32"
    """Dtype of the stored row, one of `STORAGES`."""
    plugin: str = ""
    """Package of the network, "distribution==version", if another package adds it."""
    source: str = ""
    """Paper or program with these features; changes no feature."""
    trained_on: tuple[str, ...] = ()
    """Training datasets of the default weights, () if unknown; changes no feature."""

    def __post_init__(self) -> None:
        """Raise on unsupported values and contradictory fields."""
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
        if not self.plugin:
            del values["plugin"]
        return values

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row."""
        return math.prod(self.shape) * (2 if self.storage == "float16" else 4)
