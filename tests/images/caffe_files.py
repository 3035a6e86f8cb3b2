"""Caffe's own files, written field by field."""

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


def blob(value: Tensor, old: bool) -> bytes:
    sides = [1] * (4 - value.ndim) + list(value.shape)
    if old:
        shape = b"".join(number(field, side) for field, side in enumerate(sides, 1))
    else:
        shape = block(7, block(1, b"".join(map(varint, value.shape))))
    return shape + block(5, value.numpy().astype("<f4").tobytes())
