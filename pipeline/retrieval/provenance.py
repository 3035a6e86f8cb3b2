"""The text columns of a recall table: what its provenance states about the inputs."""

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.retrieval.tables import SEEN

Metadata = Mapping[str, Any]


def members_of(metadata: Metadata) -> list[dict[str, Any]]:
    """Return the provenances of an ensemble's members, or the single one of another system."""
    provenance = metadata["provenance"]
    members = provenance.get("ensemble")
    if isinstance(members, list) and all(isinstance(member, dict) for member in members):
        return members
    return [provenance]


def columns_of(metadata: Metadata) -> dict[str, str]:
    """Return the text columns of a joint table, before its numbers.

    An ensemble has the distinct values of its members. A value that the provenance lacks, as in
    external embedding files, has no column.
    """
    members = members_of(metadata)
    columns = {
        "split": _joined(_split_of(member) for member in members),
        "protocol": _protocol_name(metadata),
        "image features": text_of(members, "inputs", "images", "recipe", "name"),
        "image weights": text_of(members, "inputs", "images", "weights"),
        "caption features": text_of(members, "inputs", "captions", "recipe", "name"),
        "caption weights": text_of(members, "inputs", "captions", "weights"),
        SEEN: _joined([training_sets(members, "has_seen"), _learnt(members)], "; "),
    }
    return {name: text for name, text in columns.items() if text}


def _split_of(member: Mapping[str, Any]) -> str:
    """Return `<dataset>/<split>`, or ""."""
    dataset, split = text_at(member, "dataset"), text_at(member, "split")
    return f"{dataset}/{split}" if dataset and split else ""


def _protocol_name(metadata: Metadata) -> str:
    """Return the name of the protocol, and the number of captions unless it is 5; or ""."""
    protocol = metadata.get("protocol")
    named = protocol if isinstance(protocol, dict) else {}
    number = {**metadata, **named}.get("captions_per_image", 5)
    of_captions = "" if number == 5 else f"{number or 'all'} captions an image"
    return ", ".join(filter(None, [str(named.get("name", "")), of_captions]))


def training_sets(members: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the training datasets of the encoders by side: `captions: NAME, NAME; ...`."""
    sides: dict[str, list[str]] = {}
    for member in members:
        sets = member.get(key)
        for side, names in sets.items() if isinstance(sets, Mapping) else ():
            sides.setdefault(str(side), []).extend(map(str, names))
    return "; ".join(f"{side}: {_joined(names, ', ')}" for side, names in sides.items())


def _learnt(members: Iterable[Mapping[str, Any]]) -> str:
    """Return `head: <dataset>/<split>` for heads trained on the ranked images, or ""."""
    learnt = [text_at(member, "trained_on") for member in members if _ranks_its_own(member)]
    return f"head: {_joined(learnt, ', ')}" if learnt else ""


def _ranks_its_own(member: Mapping[str, Any]) -> bool:
    """Return whether the splits of a table include the training split of the head."""
    stored = member.get("splits")
    names = [str(part[0]) for part in stored if part] if isinstance(stored, list) else []
    ranked = [*names, text_at(member, "split")]
    return text_at(member, "trained_on") in [
        f"{text_at(member, 'dataset')}/{name}" for name in ranked
    ]


def text_of(members: Iterable[Mapping[str, Any]], *keys: str) -> str:
    """Return the distinct texts of the members at nested keys, joined."""
    return _joined(text_at(member, *keys) for member in members)


def text_at(value: Any, *keys: str) -> str:
    """Return the text or number at nested keys; "" if it is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return str(value) if isinstance(value, str | int | float) else ""


def _joined(texts: Iterable[str], between: str = " + ") -> str:
    return between.join(dict.fromkeys(text for text in texts if text))
