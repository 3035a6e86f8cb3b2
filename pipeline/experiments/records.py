"""Whether an output is up to date: its record compared with the expected one.

Every output records its inputs. A step computes the expected record, and `why_stale` is the only
rule that compares the two.
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


class RecordError(PipelineError):
    """A record is not a JSON object."""


def why_stale(out: Path, read: Reader, expected: Callable[[], Record]) -> str:
    """Return why an output must be computed; "" if it is up to date.

    Parameters
    ----------
    out : Path. The output.
    read : Reader. Returns its record.
    expected : callable. Returns the required entries of the record, as JSON values; further entries
        are ignored. Called only if a record exists, since inputs may be missing otherwise.

    Returns
    -------
    str
        `MISSING`, the corruption, or the first difference: "seed is 0, expected 1".
    """
    try:
        record = read(out)
    except PipelineError as error:
        return str(error)
    if record is None:
        return MISSING
    # Via JSON, which turns tuples into lists.
    wanted = json.loads(json.dumps(expected()))
    return _first_difference({name: record[name] for name in wanted if name in record}, wanted)


def file_record(file: Path) -> Record | None:
    """Return an empty record for a file without one; None if it is missing."""
    return {} if file.is_file() else None


def json_record(file: Path) -> Record | None:
    """Return the object in a JSON file; None if it is missing.

    Raises
    ------
    RecordError
        The file is corrupt.
    """
    try:
        return decode(file.read_bytes(), dict[str, Any])
    except OSError:
        return None
    except ValueError as error:
        raise RecordError(f"{file} is corrupt ({error})") from error


def features_record(folder: Path) -> Record | None:
    """Return recipe, weights, row count and content hash of a feature folder from its index.

    Raises
    ------
    ShardError
        The index is corrupt.
    """
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


def _first_difference(found: Record, expected: Record, path: str = "") -> str:
    """Return the path and values of the first difference of two records; "" if equal."""
    for name in [*expected, *(name for name in found if name not in expected)]:
        one, other = found.get(name), expected.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if unlike := _first_difference(one, other, f"{path}{name}."):
                return unlike
        elif name in found and name in expected and one != other and name.endswith("_sha256"):
            changed = name.removesuffix("_sha256").replace("_", " ")
            return f"the {changed} {'have' if changed.endswith('s') else 'has'} changed"
        elif name not in found or name not in expected or one != other:
            return f"{path}{name} is {_shown(found, name)}, expected {_shown(expected, name)}"
    return ""


def _shown(record: Record, name: str) -> str:
    """Return a short form of a value for messages; hashes and long lists are truncated."""
    if name not in record:
        return "missing"
    value = record[name]
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
