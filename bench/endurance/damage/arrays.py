"""Damage to arrays of NumPy, to safetensors and to archives: inconsistent headers and members."""

import io
import json
import re
import struct
import zipfile

from bench.endurance.damage.json_values import hostile_json
from bench.endurance.damage.raw import Random, any_bytes, empty, noise


def safetensors(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change the header, and usually its stated length consistently."""
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


def npy(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change the header of a NumPy array, with a consistent length."""
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


def zip_member(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change a member of an archive, with a correct checksum."""
    source = zipfile.ZipFile(io.BytesIO(data))
    members = {name: source.read(name) for name in source.namelist()}
    name = rng.choice([*members])
    kind = rng.random()
    if kind < 0.6:
        by = (
            npy
            if name.endswith(".npy") and rng.random() < 0.6
            else rng.choice((any_bytes, empty, noise))
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
