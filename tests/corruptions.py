"""Corrupted versions of a file of this project, of each kind that happens or an attacker makes."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from safetensors.numpy import load, save

Corrupt = Callable[[bytes, Path], Iterator[bytes]]

_SAME = object()


def _has_values(item: h5py.Group | h5py.Dataset) -> bool:
    return isinstance(item, h5py.Dataset) and not item.is_scale


def _parts(data: bytes, scratch: Path, change: Callable[[Any, str], Any]) -> Iterator[bytes]:
    """Yield the file with one part changed, for each part: dataset, tensor or JSON value.

    `change` receives the value and name of a part and returns another value, None to omit the part,
    or `_SAME`.
    """
    if data.startswith(b"\x89HDF"):
        scratch.write_bytes(data)
        with h5py.File(scratch) as file:
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if _has_values(item) else None)
        for name in names:
            scratch.write_bytes(data)
            with h5py.File(scratch, "r+") as file:
                text = h5py.check_string_dtype(file[name].dtype) is not None
                value = change(file[name].asstr()[()] if text else file[name][()], name)
                if value is _SAME:
                    continue
                del file[name]
                if value is not None:
                    kind = h5py.string_dtype() if value.dtype == object else value.dtype
                    file.create_dataset(name, data=value, dtype=kind)
            yield scratch.read_bytes()
    elif data.startswith(b"{"):
        values = json.loads(data)
        for name in values:
            changed = change(values[name], name)
            if changed is not _SAME:
                rest = {key: value for key, value in values.items() if key != name}
                more = {} if changed is None else {name: changed}
                yield json.dumps(rest | more, default=lambda array: array.tolist()).encode()
    else:
        size = struct.unpack("<Q", data[:8])[0]
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__")
        tensors = load(data)
        for name in tensors:
            changed = change(tensors[name], name)
            if changed is not _SAME:
                rest = {key: value for key, value in tensors.items() if key != name}
                more = {} if changed is None else {name: np.ascontiguousarray(changed)}
                yield save(rest | more, metadata)


def _of_another_type(value: Any, name: str) -> Any:
    if not isinstance(value, np.ndarray):
        return [value] if isinstance(value, dict | None) else {"other": value}
    kind = np.int16 if value.dtype.kind == "f" else np.float64
    return np.arange(value.size, dtype=kind).reshape(value.shape)


def _longer(value: Any, name: str) -> Any:
    if not isinstance(value, np.ndarray) or not value.ndim:
        return _SAME
    return np.concatenate([value, value[-1:]])


def _not_finite(value: Any, name: str) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or not value.size:
        return _SAME
    changed = value.copy()
    changed.reshape(-1)[0] = np.nan
    return changed


def _another_value(value: Any, name: str) -> Any:
    if not isinstance(value, np.ndarray):
        return f"{value}x" if isinstance(value, str) else _SAME
    if not value.size:
        return _SAME
    changed = value.copy()
    first = changed.reshape(-1)
    first[0] = f"{first[0]}x" if value.dtype == object else first[0] == 0
    return changed


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


CORRUPTIONS: dict[str, Corrupt] = {
    "empty": lambda data, _: iter([b""]),
    "first bytes alone": lambda data, _: iter([data[:7], data[:100]]),
    "truncated": lambda data, _: iter([data[: len(data) // 2], data[:-2]]),
    "zeros": lambda data, _: iter([bytes(len(data))]),
    "text instead": lambda data, _: iter([b"<html>404 not found</html>\n"]),
    "another file": lambda data, _: iter([b"PK\x03\x04" + data, b'{"format": "other"}', b"[]"]),
    "bit of the header": lambda data, _: (_flipped(data, at) for at in (0, 3, 8)),
    "missing part": lambda data, scratch: _parts(data, scratch, lambda value, name: None),
    "another type": lambda data, scratch: _parts(data, scratch, _of_another_type),
    "another length": lambda data, scratch: _parts(data, scratch, _longer),
    "not finite": lambda data, scratch: _parts(data, scratch, _not_finite),
    "another value": lambda data, scratch: _parts(data, scratch, _another_value),
}
"""Versions of the bytes of a file by the name of their corruption; `scratch` is a spare path."""
