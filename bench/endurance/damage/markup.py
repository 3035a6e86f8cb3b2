"""Damage to XML and YAML: exploding entities and aliases, tags and values of other types."""

import re

from bench.endurance.damage.raw import Random

_BOMB = "<!DOCTYPE a [<!ENTITY l0 'lol'>" + "".join(
    f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 10)
)


def xml(rng: Random, data: bytes, other: bytes) -> bytes:
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


def yaml(rng: Random, data: bytes, other: bytes) -> bytes:
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
