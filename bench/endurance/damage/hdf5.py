"""Damage to HDF5 by HDF5 itself: the file is valid, its contents are not."""

import io
import json
from typing import Any

import h5py
import numpy as np

from bench.endurance.damage.json_values import hostile_json
from bench.endurance.damage.raw import Random


def hdf5(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change a dataset or an attribute with HDF5 itself: the file is valid, its contents not."""
    memory = io.BytesIO(data)
    with h5py.File(memory, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name = rng.choice(names)
        item = file[name]
        if file.attrs and rng.random() < 0.3:
            _attribute(rng, file.attrs)
        elif isinstance(item, h5py.Group) or rng.random() < 0.1:
            del file[name]
        else:
            value = item[()]
            del file[name]
            _dataset(rng, file, name, value)
    return memory.getvalue()


_ATTRIBUTES: tuple[Any, ...] = (
    "", "x", "\udcff".encode("utf-8", "surrogateescape"), 0, -1, 1.5, 2**63, np.zeros(3),
    np.float32("nan"), np.zeros((0,)), h5py.Empty("f4"), "9" * 5000, "[" * 5000,
    np.bytes_(b"\xff\xfe"),
)  # fmt: skip


def _attribute(rng: Random, attributes: Any) -> None:
    name = rng.choice([*attributes])
    value = attributes[name]
    del attributes[name]
    if isinstance(value, str) and value[:1] in "{[" and rng.random() < 0.6:
        attributes[name] = json.dumps(hostile_json(rng, json.loads(value)))
    elif rng.random() < 0.8:
        attributes[name] = rng.choice(_ATTRIBUTES)


def _dataset(rng: Random, file: h5py.File, name: str, value: Any) -> None:
    kind = rng.randrange(12)
    array = np.asarray(value)
    if kind == 0:
        file.create_group(name)
    elif kind == 1:
        file[name] = h5py.SoftLink(rng.choice(("/nowhere", "/", f"/{name}")))
    elif kind == 2:
        file[name] = h5py.ExternalLink("/etc/passwd", "/x")
    elif kind == 3:  # no chunk of it is on the disk
        sides = rng.choice(((2**40,), (2**20, 2**20), (2**28,), (2**26, 4)))
        dtype = h5py.string_dtype() if array.dtype == object else array.dtype
        file.create_dataset(
            name, shape=sides, dtype=dtype, chunks=(min(sides[0], 2**16),) + (4,) * (len(sides) - 1)
        )
    elif kind == 4 and array.dtype != object:
        file[name] = array.astype(rng.choice(("i1", "f8", "c16", "S3", "u8", "f2")))
    elif kind == 5:
        file[name] = array[..., None] if rng.random() < 0.5 else array.reshape(-1)
    elif kind == 6:
        file[name] = array[: len(array) // 2] if array.ndim else array
    elif kind == 7 and array.dtype == object:
        texts = [b"\xff\xfe", b"", b"a" * 1_000_000, b"../../x", b"x\ny", "\u2028".encode()]
        array = array.copy()
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice(texts)
        file.create_dataset(name, data=array, dtype=h5py.string_dtype())
    elif kind == 7:
        array = array.copy()
        array.reshape(-1)[rng.randrange(array.size)] = (
            rng.choice((0, 1, 100)) if array.dtype.kind == "u" else rng.choice((-1, 100))
        )
        file[name] = array
    elif kind == 8 and array.dtype.kind == "f":
        array = array.copy()
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, -np.inf))
        file[name] = array
    elif kind == 9:
        file[name] = h5py.Empty("f4")
    elif kind == 10:
        file[name] = np.repeat(array, 2, axis=0) if array.ndim else array
    else:
        dtype = h5py.string_dtype() if array.dtype == object else array.dtype
        file.create_dataset(
            name, data=array, dtype=dtype, chunks=True, compression="gzip", shuffle=True
        )
