"""Seeded damage to files, with respect to their format: what a checksum or a parser lets through.

Half of the files get damage to their bytes (`tests.images.fuzz` has it for pictures), half to what
they say: a JSON value of another kind or depth, a line twice, an HDF5 dataset that claims to be
larger than any disk, a header of a tensor that lies about its length, an XML entity that explodes.
"""

import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.images.fuzz import damaged

HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, "", " ", "\x00", "\ud800", "../../etc/passwd", "/etc/passwd", "a/../../b",
    "x" * 300, "x" * 2_000_000, "\u2028", "é\n", "NaN", 0, -1, 1.5, 1e308, 2**31, 2**63, 10**400,
    -(2**63), [], {}, [[]],
    {"": None}, [None], ["x"] * 1000, float("nan"), float("inf"), "1e999", "9" * 5000, "0x10",
)  # fmt: skip
HOSTILE_FIELDS = (
    b"", b"-1", b"0", b"1e999", b"nan", b"inf", b"9" * 5000, b"1.5", b"0x10", b"\x00", b"\xff\xfe",
    b"\xed\xa0\x80", b'"', b'""', b"\xef\xbb\xbf", b"../../x", b"/etc/passwd", b"x" * 100_000,
    b"\r",
    b"\xe2\x80\xa8", b" ", b"\t", b"2147483648", b"9223372036854775808", b"18446744073709551616",
    "\u0663".encode(), b"1_0", b"&#0;", b"&lol9;", b"]]>", b"*a", b"!!python/object:os.system",
    b"{", b"[",
)  # fmt: skip
_BOMB = "<!DOCTYPE a [<!ENTITY l0 'lol'>" + "".join(
    f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 10)
)

Random = random.Random


def damage(rng: Random, path: Path, other: bytes) -> str:
    """Damage a file in its place; return how.

    Parameters
    ----------
    other : bytes of another file, to splice in.
    """
    special = [by for suffixes, by in _SPECIAL if path.suffix.lower() in suffixes]
    for _ in range(1 if rng.random() < 0.7 else 2):
        how = rng.choice(special) if special and rng.random() < 0.6 else rng.choice(_ANY)
        data = path.read_bytes()
        try:
            changed = how(rng, data, other)
        except Exception:  # already too damaged for this kind of damage
            how, changed = _bytes, _bytes(rng, data or b"x", other)
        path.write_bytes(changed)
    return how.__name__


def _bytes(rng: Random, data: bytes, other: bytes) -> bytes:
    return damaged(np.random.default_rng(rng.getrandbits(32)), data or b"\0", other or b"\0")


def _empty(rng: Random, data: bytes, other: bytes) -> bytes:
    return rng.choice((b"", b"\0", b"\n", bytes(4096)))


def _noise(rng: Random, data: bytes, other: bytes) -> bytes:
    return rng.randbytes(rng.choice((1, 16, 1000, 70_000)))


def _other_kind(rng: Random, data: bytes, other: bytes) -> bytes:
    return other


def _field(rng: Random, data: bytes, other: bytes) -> bytes:
    """Put something hostile in the place of a word or number, or beside it."""
    places = list(re.finditer(rb"[^\s,;:<>\"'{}\[\]]+", data))
    place = rng.choice(places)
    field = rng.choice(HOSTILE_FIELDS)
    return (
        data[: place.start()] + field + data[place.end() if rng.random() < 0.8 else place.start() :]
    )


def _lines(rng: Random, data: bytes, other: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(5)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(to, lines[at])
    elif kind == 2:
        lines[at], lines[to] = lines[to], lines[at]
    elif kind == 3:
        lines[at] = lines[at] * 3000
    else:
        lines[at] = lines[at].rstrip(b"\r\n")
    return b"".join(lines)


def _nested(rng: Random, data: bytes, other: bytes) -> bytes:
    """Put a value in the place of another that is nested deeper than any stack."""
    depth = rng.choice((500, 3000, 200_000))
    begin, end = rng.choice((("[", "]"), ('{"a":', "}")))
    bomb = (begin * depth + "1" + end * depth).encode()
    places = list(re.finditer(rb'"[^"\n]*"|-?\d+|\[\]', data))
    place = rng.choice(places)
    return data[: place.start()] + bomb + data[place.end() :]


def hostile_json(rng: Random, value: Any) -> Any:
    """Return a JSON value of which one node is replaced, left out, repeated or renamed."""
    nodes: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            nodes.append((node, key))
            if isinstance(node[key], dict | list) and len(nodes) < 5000:
                walk(node[key])

    if isinstance(value, dict | list):
        walk(value)
    if not nodes or rng.random() < 0.03:
        return rng.choice(HOSTILE_VALUES)
    node, key = rng.choice(nodes)
    kind = rng.random()
    if kind < 0.7:
        node[key] = rng.choice(HOSTILE_VALUES)
    elif kind < 0.8:
        del node[key]
    elif kind < 0.9:
        node[key] = rng.choice(nodes)[0] if rng.random() < 0.3 else [node[key], node[key]]
        return json.loads(json.dumps(value, default=str)) if _is_tree(value) else [value, value]
    elif isinstance(node, dict):
        node[rng.choice(("", "x", "\ud800"))] = node.pop(key)
    else:
        node.insert(key, node[key])
    return value


def _is_tree(value: Any) -> bool:
    try:
        json.dumps(value)
    except (ValueError, RecursionError):
        return False
    return True


def _json(rng: Random, data: bytes, other: bytes) -> bytes:
    return json.dumps(hostile_json(rng, json.loads(data))).encode()


def _json_line(rng: Random, data: bytes, other: bytes) -> bytes:
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = _json(rng, lines[at], other)
    return b"\n".join(lines) + b"\n"


def _safetensors(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change the header, and the length that it is said to have, mostly rightly."""
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    metadata = header.get("__metadata__", {})
    key = rng.choice([*metadata]) if metadata else ""
    if key and rng.random() < 0.6:
        metadata[key] = json.dumps(hostile_json(rng, json.loads(metadata[key])))
    else:
        header = hostile_json(rng, header)
    text = json.dumps(header).encode()
    said = len(text) if rng.random() < 0.9 else rng.choice((0, 2**32, 2**63 - 1, len(text) + 8))
    return struct.pack("<Q", said) + text + data[8 + size :]


def _npy(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change the header of an array of numpy, with its length put right."""
    (size,) = struct.unpack_from("<H", data, 8)
    header = data[10 : 10 + size].decode("latin1")
    dtypes = (
        "'|O'",
        "'<f2'",
        "'<i8'",
        "'>f4'",
        "'<c16'",
        "'<U1000000'",
        "'|V0'",
        "'<M8[s]'",
        "[('a','<f4')]",
    )
    shapes = (
        "(1000000000000,)",
        "(-1,)",
        "()",
        "(0,)",
        "(3,1000000000,8)",
        "(2**70,)",
        "(1.5,)",
        "[3]",
    )
    if rng.random() < 0.5:
        header = re.sub(r"'descr': '[^']*'", f"'descr': {rng.choice(dtypes)}", header)
    else:
        header = re.sub(r"'shape': \([^)]*\)", f"'shape': {rng.choice(shapes)}", header)
    text = header.encode("latin1")
    return data[:8] + struct.pack("<H", len(text)) + text + data[10 + size :]


def _zip(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change a member of an archive, whose checksum is then right."""
    source = zipfile.ZipFile(io.BytesIO(data))
    members = {name: source.read(name) for name in source.namelist()}
    name = rng.choice([*members])
    kind = rng.random()
    if kind < 0.6:
        by = (
            _npy
            if name.endswith(".npy") and rng.random() < 0.6
            else rng.choice((_bytes, _empty, _noise))
        )
        members[name] = by(rng, members[name], other)
    elif kind < 0.8:
        members[rng.choice(("../../x.npy", "/x.npy", "x" * 300, "a\\b.npy", ""))] = members.pop(
            name
        )
    else:
        members[name] = bytes(300_000_000)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return out.getvalue()


def _hdf5(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change a dataset or an attribute by HDF5 itself: the file is sound, what it says is not."""
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


def _xml(rng: Random, data: bytes, other: bytes) -> bytes:
    text = data.decode()
    kind = rng.randrange(4)
    if kind == 0:
        return (_BOMB + "]>" + text.replace(">1<", ">&l9;<", 1)).encode()
    if kind == 1:
        entity = rng.choice(('SYSTEM "file:///etc/passwd"', 'SYSTEM "http://localhost:1/x"', "'a'"))
        return (f"<!DOCTYPE a [<!ENTITY e {entity}>]>" + text.replace(">1<", ">&e;<", 1)).encode()
    if kind == 2:
        depth = rng.choice((1000, 100_000))
        return (
            text.split(">", 1)[0] + ">" + "<object>" * depth + "</object>" * depth + "</annotation>"
        ).encode()
    tags = list(re.finditer(r"<(/?)(\w+)>", text))
    tag = rng.choice(tags)
    new = rng.choice(("", "<x/>", f"<{tag[2]}>", "<object>", "<name>&#55296;</name>"))
    return (text[: tag.start()] + new + text[tag.end() :]).encode()


def _yaml(rng: Random, data: bytes, other: bytes) -> bytes:
    kind = rng.randrange(3)
    if kind == 0:
        levels = "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]\n" for n in range(1, 12))
        return b"k0: &k0 [x, x]\n" + levels.encode() + data
    if kind == 1:
        return (
            data.replace(b": {", b": &a {b: *a, ", 1)
            if rng.random() < 0.5
            else data + b"\n? [a, b]\n: 1\n"
        )
    values = (
        b": [[]]",
        b": {}",
        b": -1",
        b": 9" + b"9" * 5000,
        b": !!binary x",
        b": !!timestamp 9",
        b": .nan",
        b": 2020-99-99",
        b": 0o9",
        b": 1:60:99",
        b": null",
    )
    places = list(re.finditer(rb": [^\n]*", data))
    place = rng.choice(places)
    return data[: place.start()] + rng.choice(values) + data[place.end() :]


Damage = Callable[[Random, bytes, bytes], bytes]
_ANY: tuple[Damage, ...] = (_bytes, _bytes, _bytes, _bytes, _bytes, _empty, _noise, _other_kind)
_TEXT: tuple[Damage, ...] = (_field, _field, _lines)
_SPECIAL: tuple[tuple[tuple[str, ...], Damage], ...] = (
    *(((".json",), by) for by in (_json, _json, _json, _nested, _field)),
    *(((".jsonl",), by) for by in (_json_line, _json_line, _json_line, _nested, *_TEXT)),
    *(((".csv", ".tsv", ".txt", ".vec", ".token", ".gt", ".testingset"), by) for by in _TEXT),
    *(((".xml",), by) for by in (_xml, _xml, *_TEXT)),
    *(((".yaml",), by) for by in (_yaml, _yaml, _nested, *_TEXT)),
    ((".safetensors",), _safetensors),
    ((".npy",), _npy),
    ((".npz", ".zip"), _zip),
    ((".h5",), _hdf5),
)
