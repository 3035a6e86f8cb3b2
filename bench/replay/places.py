"""Where two files of one name differ: attributes, datasets, keys, tensors, lines or bytes."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Contents = dict[str, Any]
"""The parts of a file by name; values are equal where the parts are."""

_LONGEST = 80

_NUMBERS = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4"}
"""Types of tensors to numpy's; others are compared as bytes."""


def places(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    """Yield each difference of two files, with a description.

    Files with equal contents differ in "layout": order, padding or spacing. For text, only the
    first differing line is yielded; for other files, the first byte.
    """
    try:
        found = contents(first), contents(second)
    except (OSError, ValueError, KeyError) as error:
        yield "layout", f"not readable as {first.suffix}: {error}"
        return
    if found[0] is None or found[1] is None:
        yield _first_place(first.read_bytes(), second.read_bytes())
    else:
        yield from _parts(found[0], found[1])


def contents(path: Path) -> Contents | None:
    """Return the parts of a file by name; None if its suffix is not that of a known format."""
    read = _READERS.get(path.suffix)
    return None if read is None else read(path)


def _parts(first: Contents, second: Contents) -> Iterator[tuple[str, str]]:
    equal = True
    for name in list(dict.fromkeys([*first, *second])):
        one, other = (found.get(name, "missing") for found in (first, second))
        if not _same(one, other):
            equal = False
            yield name, _difference(one, other)
    if equal:
        yield "layout", "the same contents, stored otherwise"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype.hasobject:
            return bool((one == other).all())
        return one.tobytes() == other.tobytes()
    return type(one) is type(other) and bool(one == other)


def _difference(one: Any, other: Any) -> str:
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    if not arrays or one.dtype != other.dtype or one.shape != other.shape or not one.shape:
        return f"{_short(one)} != {_short(other)}"
    unequal = one != other
    if one.dtype.kind == "f":
        bits = f"u{one.itemsize}"
        unequal = one.view(bits) != other.view(bits)
    first = tuple(np.argwhere(unequal)[0].tolist())
    return (
        f"{one[first]} != {other[first]} at {list(first)}, {np.count_nonzero(unequal)} of "
        f"{one.size} values differ"
    )


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _hdf5(path: Path) -> Contents:
    """Return attributes, then datasets by descending size, since checksums follow from the data."""
    found: Contents = {}
    datasets: list[tuple[str, h5py.Dataset]] = []

    def visit(name: str, thing: h5py.Group | h5py.Dataset) -> None:
        for key, value in thing.attrs.items():
            found[f"attribute {key} of {name}" if name else f"attribute {key}"] = value
        if isinstance(thing, h5py.Dataset):
            datasets.append((name, thing))

    with h5py.File(path) as file:
        visit("", file)
        file.visititems(visit)
        for name, data in sorted(datasets, key=lambda pair: -pair[1].nbytes):
            filters = (data.chunks, data.compression, data.compression_opts, data.fletcher32)
            found[f"filters of dataset {name}"] = (*filters, data.shuffle, data.maxshape)
            found[f"dataset {name}"] = np.asarray(data[()])
    return found


def _json(path: Path) -> Contents:
    return dict(_flat(json.loads(path.read_text(encoding="utf-8"))))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else f"key {key}")
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _flat(item, f"{name}[{number}]")
    else:
        yield name or "the value", value


def _safetensors(path: Path) -> Contents:
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    found = dict(_flat(header.pop("__metadata__", {}), "metadata"))
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        found[f"type of tensor {name}"] = (entry["dtype"], entry["shape"])
        rows = np.frombuffer(data[start + first : start + end], _NUMBERS.get(entry["dtype"], "u1"))
        found[f"tensor {name}"] = rows
    return found


_READERS: Mapping[str, Callable[[Path], Contents]] = {
    ".h5": _hdf5,
    ".json": _json,
    ".safetensors": _safetensors,
}


def _first_place(first: bytes, second: bytes) -> tuple[str, str]:
    try:
        lines = first.decode().split("\n"), second.decode().split("\n")
    except UnicodeDecodeError:
        pairs = enumerate(zip_longest(first, second))
        number = next(number for number, (one, other) in pairs if one != other)
        return f"byte {number}", f"{len(first)} and {len(second)} bytes"
    for number, (one, other) in enumerate(zip_longest(*lines, fillvalue="missing"), 1):
        if one != other:
            return f"line {number}", f"{_short(one)} != {_short(other)}"
    return "layout", "the same lines"
