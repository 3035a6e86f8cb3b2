"""Records of what outputs are made from, and the first difference between two of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, cast

from pipeline.store.errors import PipelineError
from pipeline.store.option_fields import recorded

MISSING = "missing"

Record = Mapping[str, Any]
Reader = Callable[[Path], Record | None]
"""From an output to its record; None if it does not exist. Raises PipelineError if corrupt."""

_LONGEST = 24


def made_from(*options: object, **inputs: Any) -> dict[str, Any]:
    """Return a record, as JSON values: all recorded fields of option objects, and the inputs."""
    named = {type(one).__name__.lower(): one for one in options}
    return cast(dict[str, Any], _json({**named, **inputs}))


def stale(out: Path, read: Reader, expected: Callable[[], Record]) -> str:
    """Return why an output must be computed; "" if it is current, `MISSING` without a record.

    Otherwise the reason is the corruption or the first difference, such as "seed is 0, expected 1".
    `expected` returns the required entries, as JSON values; a record may have further ones.
    """
    try:
        record = read(out)
    except PipelineError as error:
        return str(error)
    if record is None:
        return MISSING
    # Only now, since `expected` reads the inputs, which may be missing where no output exists.
    required = _json(expected())
    return first_difference({name: record[name] for name in required if name in record}, required)


def first_difference(record: Record, expected: Record, path: str = "") -> str:
    """Return the path and values of the first difference of two records; "" if equal."""
    for name in [*expected, *(name for name in record if name not in expected)]:
        one, other = _by_name(record.get(name)), _by_name(expected.get(name))
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if unlike := first_difference(one, other, f"{path}{name}."):
                return unlike
        elif name in record and name in expected and one != other and name.endswith("_sha256"):
            changed = name.removesuffix("_sha256").replace("_", " ")
            return f"the {changed} {'have' if changed.endswith('s') else 'has'} changed"
        elif name not in record or name not in expected or one != other:
            return f"{path}{name} is {_shown(record, name)}, expected {_shown(expected, name)}"
    return ""


def _by_name(value: Any) -> Any:
    """Return a list of objects as an object of its numbers, such as the parts of an encoder."""
    objects = isinstance(value, list) and value and isinstance(value[0], Mapping)
    return {str(number): one for number, one in enumerate(value)} if objects else value


def _json(value: Any) -> Any:
    """Return JSON values: an option object as its recorded fields, a path as text."""
    if is_dataclass(value):
        value = recorded(value)
    if isinstance(value, Mapping):
        return {str(name): _json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def _shown(record: Record, name: str) -> str:
    """Return a short form of a value for messages; hashes and long lists are truncated."""
    if name not in record:
        return "missing"
    value = record[name]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
