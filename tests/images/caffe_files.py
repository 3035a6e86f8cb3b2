"""Weight files of networks of Caffe: its own, Keras's and npm's, written field by field."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def varint(value: int) -> bytes:
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def blob(value: Tensor, old: bool = False) -> bytes:
    sides = [1] * (4 - value.ndim) + list(value.shape)
    if old:
        shape = b"".join(number(field, side) for field, side in enumerate(sides, 1))
    else:
        shape = block(7, block(1, b"".join(map(varint, value.shape))))
    return shape + block(5, value.numpy().astype("<f4").tobytes())


def caffemodel(file: dict[str, Tensor], old: bool = False, divisor: float = 4.0) -> bytes:
    """Return the bytes of Caffe's file of "<layer>.<parameter>"; statistics are sums."""
    layers, name_field, blobs_field = (2, 4, 6) if old else (100, 1, 7)
    blobs: dict[str, list[Tensor]] = {}
    for key, value in file.items():
        blobs.setdefault(key.rpartition(".")[0], []).append(value)
    data = block(1, b"a net") + block(layers, block(name_field, b"relu1") + number(5, 18))
    for name, values in blobs.items():
        if name.startswith("bn"):
            values = [*(value * divisor for value in values), torch.tensor([divisor])]
        layer = block(name_field, name.encode()) + varint(25 << 3 | 5) + b"\0\0\x80?"
        layer += b"".join(block(blobs_field, blob(value, old)) for value in values)
        data += block(layers, layer)
    return data


def as_keras(file: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return Caffe's tensors by Keras's names and in its layouts, a bias in each convolution."""
    leaves = {
        "bn.running_mean": "moving_mean", "bn.running_var": "moving_variance",
        "scale.weight": "gamma", "scale.bias": "beta",
    }  # fmt: skip
    keras = {}
    for key, value in file.items():
        layer, parameter = key.rsplit(".", 1)
        if leaf := leaves.get(f"{re.match('bn|scale|', layer)[0]}.{parameter}"):  # type: ignore[index]
            keras[f"{layer.replace('scale', 'bn')}/{leaf}"] = value
        elif parameter == "weight":
            keras[f"{layer}/kernel"] = value.permute(2, 3, 1, 0) if value.ndim == 4 else value.T
            keras.setdefault(f"{layer}/bias", torch.zeros(len(value)))
        else:
            keras[f"{layer}/bias"] = value
    return {key: value.contiguous() for key, value in keras.items()}


def write_package(
    path: Path, tensors: dict[str, Tensor], change: Callable[[Any, Any], object] | None = None
) -> None:
    """Write an npm package with a model of TensorFlow.js, in two parts out of order.

    `change` may modify the model and the files by name before they are written.
    """
    entries = [
        {"name": key, "shape": list(value.shape), "dtype": "float32"}
        for key, value in tensors.items()
    ]
    data = b"".join(value.numpy().astype("<f4").tobytes() for value in tensors.values())
    model = {"weightsManifest": [{"paths": ["part1.bin", "part2.bin"], "weights": entries}]}
    files = {"part2.bin": data[100:], "part1.bin": data[:100]}
    if change is not None:
        change(model, files)
    files["model.json"] = json.dumps(model).encode()
    with gzip.open(path, "wb", 1) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in {"index.js": b"//", **files}.items():
            member = tarfile.TarInfo(f"package/Net/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
