"""Matrices of MATLAB files of version 4 to 7.2.

scipy reads these files too, but uses the type of an element as an index without a check, and
crashes on corrupt files. Here types, sizes and shapes are checked before use. Source: MathWorks,
"MAT-File Format", levels 5 and 4.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.floating[Any]]

# dtypes by number: stored values of level 4, elements of level 5, arrays of class double or single.
_LEVEL_4 = dict(enumerate(("f8", "f4", "i4", "i2", "u2", "u1")))
_ELEMENTS = dict(zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13), "bBhHiIfdqQ", strict=True))
_CLASSES = {6: "f8", 7: "f4"}
_COMPLEX = 0x800  # in the flags of an array
_MATRIX, _COMPRESSED = 14, 15
# The last four bytes of the file header of level 5: its version and byte order.
_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
# Decompressed bytes of a variable that include its name.
_START = 1 << 16


def read_matrix(path: Path, name: str) -> Matrix | None:
    """Return a dense real variable of class double or single; None if the file has none.

    Doubles stored as integers, to save space, are returned as float64. The array is read-only and
    in Fortran order. Corrupt files, and a name that occurs twice, raise OSError, ValueError,
    struct.error or zlib.error.
    """
    with path.open("rb") as file:
        read = _read_level_4 if 0 in file.read(4) else _read_level_5
        file.seek(0)
        matrices = [*read(file, name)]
    if len(matrices) > 1:
        raise ValueError(f"{name!r} occurs {len(matrices)} times")
    return matrices[0] if matrices else None


def _read_level_4(file: BinaryIO, name: str) -> Iterator[Matrix]:
    while _left(file):
        head = _exactly(file, 20)
        order = "<" if struct.unpack("<i", head[:4])[0] in range(100) else ">"
        kind, rows, columns, imaginary, length = struct.unpack(f"{order}5i", head)
        # Decimal digits: byte order (0 or 1), 0, stored type, and 0 for a dense matrix.
        if kind not in (range(100) if order == "<" else range(1000, 1100)):
            raise ValueError(f"matrix of unknown type {kind}")
        stored = _dtype(_LEVEL_4, kind % 100 // 10, order)
        label = _exactly(file, length).rstrip(b"\0").decode("latin-1")
        values = _exactly(file, rows * columns * stored.itemsize * (2 if imaginary else 1))
        if label == name and not (imaginary or kind % 10):
            dtype = "f4" if stored.char == "f" else "f8"
            yield _matrix(np.frombuffer(values, stored), [rows, columns], dtype)


def _read_level_5(file: BinaryIO, name: str) -> Iterator[Matrix]:
    version = _exactly(file, 128)[124:]
    if version not in _ORDERS:
        raise ValueError(f"found version {version!r}; save the file with option -v7")
    order = _ORDERS[version]
    while _left(file) >= 8:  # less is padding
        kind, size = struct.unpack(f"{order}2I", _exactly(file, 8))
        data: bytes | memoryview = (stored := _exactly(file, size))
        if compressed := kind == _COMPRESSED:
            data = zlib.decompressobj().decompress(stored, _START)
            kind, size = struct.unpack_from(f"{order}2I", data)
            data = data[8:]
        if kind != _MATRIX:
            raise ValueError(f"variable of type {kind}, expected {_MATRIX}")
        flags, shape, label = islice(_elements(data, order), 3)
        if label.tobytes().decode("latin-1") != name:
            continue
        if compressed:
            inflate = zlib.decompressobj()
            # One more byte than there should be, which also has zlib compare the checksum.
            data = memoryview(inflate.decompress(stored, 8 + size + 1))[8:]
            if not inflate.eof or len(data) != size:
                raise ValueError(f"{name!r} does not have the {size} bytes that it claims")
        dtype = _CLASSES.get((word := int(flags[0])) & 0xFF)
        if dtype is None or word & _COMPLEX:
            continue
        *_, values = islice(_elements(data, order), 4)
        yield _matrix(values, shape.tolist(), dtype)


def _elements(data: bytes | memoryview, order: str) -> Iterator[npt.NDArray[Any]]:
    """Yield the elements of a level 5 variable; sizes are multiples of 8 with their padding."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}2I", data, at)
        start, at = at + 8, at + 8 + -(-size // 8) * 8
        if kind >> 16:  # up to 4 bytes, next to their type and size
            kind, size, start, at = kind & 0xFFFF, kind >> 16, start - 4, start
        dtype = _dtype(_ELEMENTS, kind, order)
        if start + size > min(at, len(data)):
            raise ValueError(f"element of {size} bytes at byte {start} of {len(data)}")
        yield np.frombuffer(memoryview(data)[start : start + size], dtype)


def _dtype(dtypes: dict[int, str], number: int, order: str) -> np.dtype[Any]:
    if number not in dtypes:
        raise ValueError(f"values of unknown type {number}")
    return np.dtype(order + dtypes[number])


def _matrix(values: npt.NDArray[Any], shape: list[int], dtype: str) -> Matrix:
    if min(shape) < 0:  # which `reshape` would infer
        raise ValueError(f"shape {shape}")
    with np.errstate(all="ignore"):
        return values.astype(dtype, copy=False).reshape(shape, order="F")


def _left(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size - file.tell()


def _exactly(file: BinaryIO, count: int) -> bytes:
    """Return the next bytes of a file, without memory for more than it has."""
    if not 0 <= count <= (left := _left(file)):
        raise ValueError(f"found {left} bytes at byte {file.tell()}, expected {count}")
    return file.read(count)
