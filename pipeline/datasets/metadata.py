"""The user's own columns of images, such as a year or tags: `metadata.jsonl` next to a manifest.

They are stored apart from the manifest, so that editing a column does not make features, heads or
tables stale. `dataset.json` records the SHA-256 of the file.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import METADATA_FILE, Metadata, read_description, require_recorded
from pipeline.store.schema import SchemaError, decode_lines

_NO_VALUE = "expected a text, number, bool, date or list of texts"


def read_metadata(dataset: str | Path) -> dict[str, Metadata]:
    """Return the metadata of a dataset's images.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.

    Returns
    -------
    dict of str to dict
        Values of each image id by column: str, number, bool or list of str. Images without values
        are omitted; {} for a dataset without metadata.

    Raises
    ------
    DatasetError
        The file is missing, corrupt, or does not match `dataset.json`.

    Examples
    --------
    >>> pipeline.read_metadata("data/mine")
    {}
    """
    folder = Path(dataset)
    expected = read_description(folder).metadata_sha256
    if expected is None:
        return {}
    path = folder / METADATA_FILE
    require_recorded(path, expected, "changed or removed; prepare the dataset again")
    try:
        with path.open("rb") as stream:
            return {line["id"]: line["metadata"] for line in decode_lines(stream, dict[str, Any])}
    except (ValueError, KeyError) as error:
        raise DatasetError(f"{path}: {error}; prepare the dataset again") from error


def value_of(cell: Any) -> Any:
    """Return a cell as a JSON value; None if it is empty; raise `SchemaError` for other types.

    Dates become ISO 8601 text, numpy numbers Python numbers; NaN, NaT and blank text are empty.
    """
    if isinstance(cell, str):
        return _text(cell) or None
    if cell is None or cell is True or cell is False:
        return cell
    if hasattr(cell, "tolist"):
        return value_of(cell.tolist())
    if isinstance(cell, int):
        return cell
    if isinstance(cell, float):
        if math.isinf(cell):
            raise SchemaError(_NO_VALUE)
        return None if math.isnan(cell) else cell
    if isinstance(cell, date | time):
        return cell.isoformat() if cell == cell else None  # NaT of pandas is a date
    if isinstance(cell, Decimal):
        return None if cell.is_nan() else str(cell)
    if isinstance(cell, list | tuple) and all(isinstance(item, str) for item in cell):
        return [_text(item) for item in cell if item.strip()] or None
    raise SchemaError(_NO_VALUE)


def without_columns(
    metadata: Iterable[tuple[str, Metadata]], names: Iterable[str]
) -> dict[str, Metadata]:
    """Return metadata by image id without some columns; images without values are omitted."""
    dropped = {*names}
    rest = ((name, {k: v for k, v in row.items() if k not in dropped}) for name, row in metadata)
    return {name: row for name, row in rest if row}


def columns_of(metadata: Mapping[str, Metadata]) -> list[str]:
    """Return the names of all columns, sorted."""
    return sorted({name for columns in metadata.values() for name in columns})


def _text(text: str) -> str:
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise SchemaError(_NO_VALUE)
    return text.strip()
