"""JSON tables: one object per line, a list of objects, or an object of lists."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables.table import RowFault, Table
from pipeline.datasets.readers.tables.text_file import UTF_8, encoding_of, text_lines, whole_text
from pipeline.datasets.source import parse_json
from pipeline.store.schema import SchemaError, decode

LINES_SUFFIXES = (".jsonl", ".ndjson")


def read_json_lines(path: Path, encoding: str | None = None) -> Table:
    """Return the objects of a file with one per line, without keys whose value is null."""
    encoding = encoding_of(path, encoding)
    notes = {} if encoding == UTF_8 else {"encoding": encoding}
    return Table(str(path), "line", _of_lines(text_lines(path, encoding)), notes=notes)


def read_json_table(path: Path, encoding: str | None = None) -> Table:
    """Return the entries of a list of objects, or of an object of lists of equal length."""
    encoding = encoding_of(path, encoding)
    notes = {} if encoding == UTF_8 else {"encoding": encoding}
    value: Any = parse_json(whole_text(path, encoding), str(path), Any)
    if isinstance(value, dict):
        value = _transposed(path, value)
    if not isinstance(value, list):
        raise DatasetError(f"{path}: found {type(value).__name__}; expected a list of objects")
    records = ((n, _object(entry)) for n, entry in enumerate(value, start=1))
    return Table(str(path), "entry", records, notes=notes)


def _of_lines(
    lines: Iterator[tuple[int, str]],
) -> Iterator[tuple[int, Mapping[str, Any] | RowFault]]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            value = decode(line, dict[str, Any])
        except SchemaError as error:
            yield number, RowFault("malformed line", str(error))
            continue
        yield number, _object(value)


def _object(value: Any) -> Mapping[str, Any] | RowFault:
    if not isinstance(value, dict):
        return RowFault("malformed entry", f"an object was expected, found {value!r:.60}")
    return {key: item for key, item in value.items() if item is not None}


def _transposed(path: Path, value: dict[str, Any]) -> list[dict[str, Any]]:
    if "annotations" in value and "images" in value:
        raise DatasetError(f"{path} is in COCO's caption format; `pipeline prepare coco` reads it")
    if isinstance(value.get("images"), list) and len(value) <= 2:
        raise DatasetError(
            f"{path} is in Karpathy's split format; `pipeline prepare karpathy` reads it"
        )
    lengths = {key: len(item) if isinstance(item, list) else -1 for key, item in value.items()}
    if len(set(lengths.values())) != 1 or -1 in lengths.values():
        keys = ", ".join(f"{key!r}" for key in list(value)[:10])
        raise DatasetError(
            f"{path}: found an object with {keys}; expected a list of objects, or an object of "
            "lists of the same length"
        )
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
