"""Whether an output is up to date: its record of its inputs, compared with the expected one.

`why_stale` is the only rule that compares the two.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.store.errors import PipelineError
from pipeline.store.schema import decode
from pipeline.store.shards.feature_set import read_set_index
from pipeline.store.shards.format import FeatureHeader
from pipeline.store.shards.index import INDEX_FILE
from pipeline.store.shards.side_by_side import is_view

MISSING = "missing"

Record = Mapping[str, Any]
Reader = Callable[[Path], Record | None]
"""From an output to its record; None if it does not exist. Raises PipelineError if corrupt."""

_LONGEST = 24


def why_stale(out: Path, read: Reader, expected: Callable[[], Record]) -> str:
    """Return why an output must be computed; "" if it is up to date, `MISSING` without a record.

    Otherwise the reason is the corruption or the first difference, such as "seed is 0, expected 1".
    `expected` returns the required entries, as JSON values; a record may have further ones.
    """
    try:
        record = read(out)
    except PipelineError as error:
        return str(error)
    if record is None:
        return MISSING
    # Only now, since `expected` reads the inputs, which may be missing where no output exists. Via
    # JSON, which turns tuples into lists.
    required = json.loads(json.dumps(expected()))
    return _first_difference({name: record[name] for name in required if name in record}, required)


def file_record(file: Path) -> Record | None:
    """Return an empty record for a file without one; None if it is missing."""
    return {} if file.is_file() else None


def json_record(file: Path) -> Record | None:
    """Return the object in a JSON file; None if it is missing. Raises if it is corrupt."""
    try:
        return decode(file.read_bytes(), dict[str, Any])
    except OSError:
        return None
    except ValueError as error:
        # Not a FileReadError, which is of the system and stops all steps.
        raise PipelineError(f"{file} is corrupt ({error})") from error


def features_record(folder: Path) -> Record | None:
    """Return recipe, weights, rows and content hash of a feature folder; None if it is missing."""
    if not (folder / INDEX_FILE).is_file() and not is_view(folder):
        return None
    index = read_set_index(folder)
    return {
        "rows": index.rows,
        "recipe": index.header.recipe,
        **_weights(index.header),
        "content_sha256": index.content_sha256,
    }


def weights_of(features: Path) -> dict[str, str]:
    """Return name and SHA-256 of the weights of image features."""
    return _weights(read_set_index(features).header)


def _weights(header: FeatureHeader) -> dict[str, str]:
    return {"weights": header.weights, "weights_sha256": header.weights_sha256}


def _first_difference(record: Record, expected: Record, path: str = "") -> str:
    """Return the path and values of the first difference of two records; "" if equal."""
    for name in [*expected, *(name for name in record if name not in expected)]:
        one, other = record.get(name), expected.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if unlike := _first_difference(one, other, f"{path}{name}."):
                return unlike
        elif name in record and name in expected and one != other and name.endswith("_sha256"):
            changed = name.removesuffix("_sha256").replace("_", " ")
            return f"the {changed} {'have' if changed.endswith('s') else 'has'} changed"
        elif name not in record or name not in expected or one != other:
            return f"{path}{name} is {_shown(record, name)}, expected {_shown(expected, name)}"
    return ""


def _shown(record: Record, name: str) -> str:
    """Return a short form of a value for messages; hashes and long lists are truncated."""
    if name not in record:
        return "missing"
    value = record[name]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
