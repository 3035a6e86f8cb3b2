"""Damage to the bytes, words and lines of a file of any format."""

import random
import re

import numpy as np

from tests.images.fuzz import damaged

Random = random.Random

HOSTILE_FIELDS = (
    b"", b"-1", b"0", b"1e999", b"nan", b"inf", b"9" * 5000, b"1.5", b"0x10", b"\x00", b"\xff\xfe",
    b"\xed\xa0\x80", b'"', b'""', b"\xef\xbb\xbf", b"../../x", b"/etc/passwd", b"x" * 100_000,
    b"\r",
    b"\xe2\x80\xa8", b" ", b"\t", b"2147483648", b"9223372036854775808", b"18446744073709551616",
    "\u0663".encode(), b"1_0", b"&#0;", b"&lol9;", b"]]>", b"*a", b"!!python/object:os.system",
    b"{", b"[",
)  # fmt: skip


def any_bytes(rng: Random, data: bytes, other: bytes) -> bytes:
    return damaged(np.random.default_rng(rng.getrandbits(32)), data or b"\0", other or b"\0")


def empty(rng: Random, data: bytes, other: bytes) -> bytes:
    return rng.choice((b"", b"\0", b"\n", bytes(4096)))


def noise(rng: Random, data: bytes, other: bytes) -> bytes:
    return rng.randbytes(rng.choice((1, 16, 1000, 70_000)))


def other_kind(rng: Random, data: bytes, other: bytes) -> bytes:
    return other


def field(rng: Random, data: bytes, other: bytes) -> bytes:
    """Insert hostile text in place of a word or number, or next to it."""
    places = list(re.finditer(rb"[^\s,;:<>\"'{}\[\]]+", data))
    place = rng.choice(places)
    field = rng.choice(HOSTILE_FIELDS)
    return (
        data[: place.start()] + field + data[place.end() if rng.random() < 0.8 else place.start() :]
    )


def lines(rng: Random, data: bytes, other: bytes) -> bytes:
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
