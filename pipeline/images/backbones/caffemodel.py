"""A minimal reader of `.caffemodel` files: just enough of Caffe's protocol buffers.

Fields (caffe.proto): NetParameter has its layers at 100, before 2015 at 2; a layer has its name at
1 (before: 4) and its blobs at 7 (before: 6); a blob has its values at 5 (float) or 8 (double), and
its shape at 7 (before: 1 to 4).
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline.images.networks import WeightsError

# Field number of layers -> field numbers of a layer's name and blobs.
_LAYERS = {100: (1, 7), 2: (4, 6)}
_PARAMETERS = ("weight", "bias")
_STATISTICS = ("running_mean", "running_var")
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5

Field = tuple[int, int | memoryview]


def read_caffemodel(path: Path) -> dict[str, Tensor]:
    """Return the weights and biases of a trained Caffe network, float32.

    `<layer>.weight` and `<layer>.bias`, with one-dimensional biases and two-dimensional fully
    connected weights; for a batch norm, which has no scale and offset, `<layer>.running_mean` and
    `<layer>.running_var`. Layers without parameters are left out.
    """
    tensors: dict[str, Tensor] = {}
    for number, layer in _fields(memoryview(path.read_bytes())):
        if number not in _LAYERS or isinstance(layer, int):
            continue
        name_field, blobs_field = _LAYERS[number]
        name, blobs = "", []
        for inner, value in _fields(layer):
            if inner == name_field and not isinstance(value, int):
                name = bytes(value).decode("utf-8", "replace")
            elif inner == blobs_field and not isinstance(value, int):
                blobs.append(_blob(value, name))
        if len(blobs) == 3 and blobs[0].shape == blobs[1].shape and blobs[2].numel() == 1:
            # Sums over training steps, and their divisor; Caffe reads a divisor of 0 so, too.
            scale = 1 / blobs[2].item() if blobs[2].item() else 0.0
            for statistic, total in zip(_STATISTICS, blobs, strict=False):
                tensors[f"{name}.{statistic}"] = total.flatten() * scale
            continue
        if len(blobs) > len(_PARAMETERS):
            raise WeightsError(f"layer {name!r} has {len(blobs)} blobs, not a weight and a bias")
        for parameter, blob in zip(_PARAMETERS, blobs, strict=False):
            tensors[f"{name}.{parameter}"] = blob.flatten() if parameter == "bias" else blob
    if not tensors:
        raise WeightsError("it has no layer with parameters")
    return tensors


def _blob(message: memoryview, layer: str) -> Tensor:
    shape: list[int] = []
    old_shape = {1: 1, 2: 1, 3: 1, 4: 1}
    pieces = []
    for number, value in _fields(message):
        if number in old_shape and isinstance(value, int):
            old_shape[number] = value
        elif number == 7 and not isinstance(value, int):
            for _, dims in _fields(value):
                shape += [dims] if isinstance(dims, int) else _varints(dims)
        elif number in (5, 8) and not isinstance(value, int):
            kind = np.dtype("<f4" if number == 5 else "<f8")
            if len(value) % kind.itemsize:
                raise WeightsError(
                    f"layer {layer!r}: {len(value)} bytes are not a multiple of {kind.itemsize}"
                )
            pieces.append(np.frombuffer(value, kind))
    values = np.concatenate(pieces or [np.zeros(0)]).astype(np.float32)
    if not shape:
        # Fully connected layers used to be stored as (1, 1, outputs, inputs).
        sides = list(old_shape.values())
        shape = sides[2:] if sides[:2] == [1, 1] else sides
    if values.size != prod(shape) or max(shape, default=0) > values.size:
        raise WeightsError(f"layer {layer!r} has {values.size} values for a shape of {shape}")
    return torch.from_numpy(values.reshape(shape))


def _fields(message: memoryview) -> Iterator[Field]:
    """Yield (field number, integer or bytes) of a message; single floats as bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            integer, position = _varint(message, position)
            yield number, integer
            continue
        if kind == _LENGTH:
            length, position = _varint(message, position)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise WeightsError(f"field {number} has the unknown wire type {kind}")
        if position + length > len(message):
            raise WeightsError(f"field {number} ends beyond the end of the file")
        yield number, message[position : position + length]
        position += length


def _varints(data: memoryview) -> list[int]:
    values, position = [], 0
    while position < len(data):
        value, position = _varint(data, position)
        values.append(value)
    return values


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise WeightsError("a number is truncated or too long")
