"""Whether a file or folder was made from what it should be: read from what the files say."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.files import parse_json
from pipeline.shards.feature_set import read_set_index
from pipeline.shards.format import ShardError
from pipeline.shards.index import INDEX_FILE
from pipeline.shards.side_by_side import is_view

MISSING = "missing"


def weights_of(features: Path) -> dict[str, str]:
    """Return name and SHA-256 of the weights that image features were made with."""
    header = read_set_index(features).header
    return {"weights": header.weights, "weights_sha256": header.weights_sha256}


def index_fault(
    folder: Path, rows: int, recipe: Mapping[str, Any] | None = None
) -> Callable[[], str]:
    """Return the check of a feature folder by its index alone."""

    def fault() -> str:
        if not (folder / INDEX_FILE).is_file() and not is_view(folder):
            return MISSING
        try:
            index = read_set_index(folder)
        except ShardError as error:
            return str(error)
        if recipe is not None and (unlike := difference(index.header.recipe, recipe)):
            return unlike
        return "" if index.rows == rows else f"{index.rows} rows, the dataset has {rows}"

    return fault


def json_fault(file: Path, wanted: Callable[[], Mapping[str, Any]]) -> Callable[[], str]:
    """Return the check of a JSON file that says what something was made from."""

    def fault() -> str:
        try:
            found = parse_json(file.read_text(encoding="utf-8"))
        except OSError:
            return MISSING
        except ValueError:
            return f"{file} is damaged"
        return difference(found, wanted())

    return fault


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return which wanted entries are others; "" if none is."""
    # By way of JSON, since tuples are lists there.
    unlike = [k for k, v in wanted.items() if found.get(k) != json.loads(json.dumps(v))]
    return f"made with other {', '.join(unlike)}" if unlike else ""
