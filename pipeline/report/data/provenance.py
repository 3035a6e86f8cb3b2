"""What a recall table is about, read from its provenance: split, protocol, features, weights."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Facts = Mapping[str, Any]
"""The JSON object of a `provenance.json` as `pipeline evaluate` writes it."""


def members_of(facts: Facts) -> list[dict[str, Any]]:
    """Return the provenances of an ensemble's members, or the one of a single system."""
    own = facts["provenance"]
    members = own.get("ensemble")
    if isinstance(members, list) and all(isinstance(one, dict) for one in members):
        return members
    return [own]


def columns_of(facts: Facts) -> dict[str, str]:
    """Return the columns of text that a joint table has before its numbers.

    An ensemble has the different values of its members. What the provenance does not say, as
    somebody else's need not, has no column.
    """
    members = members_of(facts)
    columns = {
        "split": _joined(split_of(one) for one in members),
        "protocol": _protocol(facts),
        "image features": _joined(
            _of(one, "inputs", "images", "recipe", "name") for one in members
        ),
        "image weights": _joined(_of(one, "inputs", "images", "weights") for one in members),
        "caption features": _joined(
            _of(one, "inputs", "captions", "recipe", "name") for one in members
        ),
        "caption weights": _joined(_of(one, "inputs", "captions", "weights") for one in members),
    }
    return {name: text for name, text in columns.items() if text}


def dataset_of(facts: Facts) -> str:
    """Return the dataset's name, or "" where it is not said or members differ."""
    names = {_of(one, "dataset") for one in members_of(facts)}
    return names.pop() if len(names) == 1 else ""


def split_of(own: Mapping[str, Any]) -> str:
    """Return `<dataset>/<split>`, or ""."""
    dataset, split = _of(own, "dataset"), _of(own, "split")
    return f"{dataset}/{split}" if dataset and split else ""


def lineage_of(facts: Facts) -> dict[str, str]:
    """Return what made the numbers, in short: features, hashes of inputs, seed, software.

    "" where it is not said.
    """
    members = members_of(facts)
    columns = columns_of(facts)

    def of(*keys: str) -> str:
        return _joined(_of(one, *keys) for one in members)

    return {
        "image features": columns.get("image features", ""),
        "their recipe hash": of("inputs", "images", "recipe_hash"),
        "weights": columns.get("image weights", ""),
        "caption features": columns.get("caption features", ""),
        "their hash": of("inputs", "captions", "recipe_hash"),
        "head": of("head"),
        "trained on": of("trained_on"),
        "chosen on": of("chosen_on"),
        "seed": of("seed"),
        "embedding file": str(facts.get("embeddings_sha256", ""))[:16],
        "software": of("software"),
    }


def flattened(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every fact of nested JSON as a dotted name and its text."""
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from flattened(value[key], f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        for number, one in enumerate(value):
            yield from flattened(one, f"{name}.{number}")
    elif isinstance(value, list):
        yield name, ", ".join(_plain(one) for one in value)
    else:
        yield name, _plain(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _protocol(facts: Facts) -> str:
    said = facts.get("protocol")
    if not isinstance(said, dict):
        return ""
    number = said.get("captions_per_image")
    name = str(said.get("name", ""))
    return name if number == 5 else f"{name}, {number or 'all'} captions an image"


def _of(value: Any, *keys: str) -> str:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return str(value) if isinstance(value, str | int | float) else ""


def _joined(texts: Iterator[str]) -> str:
    return " + ".join(dict.fromkeys(text for text in texts if text))
