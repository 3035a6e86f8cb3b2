"""MATLAB files: scipy's values, and a named error for each damage, also where scipy crashes."""

import struct
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from scipy.sparse import csc_array

from pipeline.store.convert.importers.arrays import MatFeatures
from pipeline.store.convert.importers.matlab import read_matrix
from pipeline.store.shards.format import ShardError

RNG = np.random.default_rng(0)
SHAPES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 2), (3, 5), (400, 70), (2, 1, 3)]
FLOATS = {
    f"x{number}": RNG.standard_normal(shape).astype(dtype)
    for number, (shape, dtype) in enumerate(product(SHAPES, ("f4", "f8")))
}
# All else that savemat writes.
OTHERS: dict[str, object] = {
    f"{dtype}_{size}": np.ones((size, 3), dtype)
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?", "F", "D")
    for size in (0, 1, 9)
} | {
    "sparse": csc_array(np.eye(3)),
    "nothing": csc_array((0, 4)),
    "cell": np.array([np.ones((2, 2)), "text", np.zeros((0, 0))], object),
    "struct": {"feats": np.ones((2, 2)), "more": {"a": 1.0}},
    "records": np.array([(1.0, "a"), (2.0, "bc")], [("n", object), ("s", object)]),
    "text": "some words \u00e9",
    "texts": np.array(["a", "bcd"]),
    "empty": "",
}


@pytest.mark.parametrize("compressed", [False, True])
def test_matrices_equal_those_of_scipy_among_all_other_kinds(
    compressed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "x.mat"
    savemat(path, OTHERS | FLOATS, do_compression=compressed)
    expected = loadmat(path)
    for name in FLOATS:
        found = read_matrix(path, name)
        np.testing.assert_array_equal(found, expected[name], strict=True)
    assert [name for name in [*OTHERS, "missing"] if read_matrix(path, name) is not None] == []


def test_level_4_matrices_equal_those_of_scipy(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    floats = {name: values for name, values in FLOATS.items() if values.ndim == 2}
    others = {name: OTHERS[name] for name in ("text", "sparse", "D_9")}
    savemat(path, others | floats, format="4")
    expected = loadmat(path)
    for name in floats:
        np.testing.assert_array_equal(read_matrix(path, name), expected[name], strict=True)
    assert [name for name in [*others, "missing"] if read_matrix(path, name) is not None] == []
    head = struct.pack(">5i", 1030, 2, 1, 0, 2)  # big-endian, stored as int16
    path.write_bytes(head + b"x\0" + struct.pack(">2h", 3, -4))
    np.testing.assert_array_equal(read_matrix(path, "x"), [[3.0], [-4.0]], strict=True)


def element(order: str, kind: int, data: bytes) -> bytes:
    return struct.pack(f"{order}2I", kind, len(data)) + data + bytes(-len(data) % 8)


@pytest.mark.parametrize(("order", "version"), [("<", b"\0\1IM"), (">", b"\1\0MI")])
def test_doubles_stored_as_bytes_in_each_byte_order(
    order: str, version: bytes, tmp_path: Path
) -> None:
    small = struct.pack(f"{order}I", 3 << 16 | 2) + b"\7\10\11\0"  # 3 of type 2, uint8
    variable = element(
        order,
        14,
        element(order, 6, struct.pack(f"{order}2I", 6, 0))
        + element(order, 5, struct.pack(f"{order}2i", 1, 3))
        + element(order, 1, b"feats")
        + small,
    )
    path = tmp_path / "x.mat"
    for stored in (variable, element(order, 15, zlib.compress(variable))):
        path.write_bytes(b"MATLAB".ljust(124) + version + stored)
        found = read_matrix(path, "feats")
        np.testing.assert_array_equal(found, np.array([[7.0, 8.0, 9.0]]), strict=True)


@pytest.mark.parametrize("kind", range(20, 1100, 37))
def test_an_unknown_type_that_scipy_looks_up_beyond_its_table_is_named(
    kind: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"feats": np.ones((6, 3), np.float32)})
    data = bytearray(path.read_bytes())
    data[184:188] = struct.pack("<I", kind)
    path.write_bytes(data)
    with pytest.raises(ShardError, match=rf"x\.mat is damaged .* unknown type {kind}.*is complete"):
        MatFeatures(path, ["a", "b", "c"])


@pytest.mark.parametrize("options", [{}, {"do_compression": True}, {"format": "4"}])
def test_each_damaged_byte_and_each_cut_ends_in_features_or_a_named_error(
    options: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"feats": np.ones((2, 3), np.float32)}, **options)
    valid = path.read_bytes()
    start = 0 if options.get("format") else 116
    damaged = [valid[:size] for size in range(len(valid))]
    for at in range(start, len(valid)):
        for byte in (15, 255):
            damaged.append(valid[:at] + bytes([byte]) + valid[at + 1 :])
    refused = 0
    for data in damaged:
        path.write_bytes(data)
        try:
            MatFeatures(path, ["a", "b", "c"])
        except ShardError:
            refused += 1
    assert len(valid) <= refused < len(damaged)


def test_version_7_3_is_refused_with_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM" + bytes(512))
    with pytest.raises(ShardError, match="option -v7"):
        MatFeatures(path, [])
