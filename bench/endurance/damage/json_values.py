"""Damage to JSON: values of another type, or removed, repeated, renamed or deeply nested ones."""

import json
import re
from typing import Any

from bench.endurance.damage.raw import Random

HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, "", " ", "\x00", "\ud800", "../../etc/passwd", "/etc/passwd", "a/../../b",
    "x" * 300, "x" * 2_000_000, "\u2028", "é\n", "NaN", 0, -1, 1.5, 1e308, 2**31, 2**63, 10**400,
    -(2**63), [], {}, [[]],
    {"": None}, [None], ["x"] * 1000, float("nan"), float("inf"), "1e999", "9" * 5000, "0x10",
)  # fmt: skip


def nested(rng: Random, data: bytes, other: bytes) -> bytes:
    """Replace a value by one that is nested deeper than any stack."""
    depth = rng.choice((500, 3000, 200_000))
    begin, end = rng.choice((("[", "]"), ('{"a":', "}")))
    bomb = (begin * depth + "1" + end * depth).encode()
    places = list(re.finditer(rb'"[^"\n]*"|-?\d+|\[\]', data))
    place = rng.choice(places)
    return data[: place.start()] + bomb + data[place.end() :]


def hostile_json(rng: Random, value: Any) -> Any:
    """Return a JSON value with one node replaced, removed, repeated or renamed."""
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


def json_value(rng: Random, data: bytes, other: bytes) -> bytes:
    return json.dumps(hostile_json(rng, json.loads(data))).encode()


def json_line(rng: Random, data: bytes, other: bytes) -> bytes:
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = json_value(rng, lines[at], other)
    return b"\n".join(lines) + b"\n"
