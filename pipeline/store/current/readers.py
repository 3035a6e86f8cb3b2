"""Readers of the records that files carry, one per kind of output; other rooms add theirs."""

from pathlib import Path
from typing import Any

from pipeline.store.current.record import Record
from pipeline.store.errors import PipelineError
from pipeline.store.schema import decode
from pipeline.store.shards.feature_set import read_set_index
from pipeline.store.shards.index import INDEX_FILE
from pipeline.store.shards.side_by_side import is_view


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
        **weights_record(folder),
        "content_sha256": index.content_sha256,
    }


def weights_record(features: Path) -> dict[str, str]:
    """Return name and SHA-256 of the weights of existing features."""
    header = read_set_index(features).header
    return {"weights": header.weights, "weights_sha256": header.weights_sha256}
