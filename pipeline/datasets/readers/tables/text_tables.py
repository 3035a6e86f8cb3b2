"""Tables in text files: CSV and its variants, JSON lines, and JSON.

pyarrow's readers of CSV and JSON are not used: they infer types, so that the id 007 becomes 7, and
do not state the line of a wrong row.
"""

import codecs
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables.table import RowFault, Table, captions_by_image
from pipeline.datasets.source import UTF_8, parse_json, read_lines, read_text
from pipeline.store.inner_files import open_file
from pipeline.store.objects.urls import shown
from pipeline.store.schema import SchemaError, decode_given

DELIMITED_SUFFIXES = (".csv", ".tsv", ".tab", ".psv", ".txt")
LINES_SUFFIXES = (".jsonl", ".ndjson")

_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, UTF_8),
)
_REMEDY = "state its encoding, for example `encoding=cp1252`, or convert the file to UTF-8"

CheckColumns = Callable[[Sequence[str]], object]
"""Raises `RowFault` unless a header has the expected columns."""


def read_delimited(
    path: Path,
    check_columns: CheckColumns,
    encoding: str | None = None,
    columns: Sequence[str] = (),
) -> Table:
    """Return the rows of a text file, by column in lower case.

    `columns` are those of a file without a header. The separator is the first of comma, semicolon,
    tab and bar with as many columns, or with a header for which `check_columns` does not raise
    `RowFault`. A row of another length is a `RowFault`; text that is not CSV raises while the
    records are read.
    """
    encoding = _encoding_of(path, encoding)
    lines = read_lines(path, encoding, _REMEDY)
    number, line = next(((number, line) for number, line in lines if line), (0, ""))
    if not line:
        raise DatasetError(f"{path} is empty; expected a header and lines, or records")
    check = partial(_check_stated, columns, check_columns) if columns else check_columns
    separator, header = _header(line, f"{path}, line {number}", check, path.suffix.lower())
    if columns:
        header = [column.strip().lower() for column in columns]
        lines, number = chain([(number, line)], lines), number - 1
    notes = {} if separator == "," else {"separator": _SEPARATORS[separator]}
    reader = csv.reader((text + "\n" for _, text in lines), delimiter=separator, strict=True)
    records = _csv_records(path, reader, number, header, separator)
    return Table(shown(path), "line", records, notes=notes | _noted(encoding))


def read_json_lines(path: Path, encoding: str | None = None) -> Table:
    """Return the objects of a file with one per line."""
    encoding = _encoding_of(path, encoding)
    records = _records_of_lines(read_lines(path, encoding, _REMEDY))
    return Table(shown(path), "line", records, notes=_noted(encoding))


def read_json_table(path: Path, check_columns: CheckColumns, encoding: str | None = None) -> Table:
    """Return the entries of a list of objects, or of an object: by column, or captions by path."""
    encoding = _encoding_of(path, encoding)
    value: Any = parse_json(read_text(path, encoding, _REMEDY), shown(path), Any)
    if isinstance(value, dict):
        value = _records_of_object(path, value, check_columns)
    if not isinstance(value, list):
        raise DatasetError(f"{path}: found {type(value).__name__}; expected a list of objects")
    records = ((n, _object(entry)) for n, entry in enumerate(value, start=1))
    return Table(shown(path), "entry", records, notes=_noted(encoding))


def _encoding_of(path: Path, stated: str | None) -> str:
    """Return the encoding of a file: by byte order mark, else as stated, else UTF-8."""
    try:
        "x".encode(stated or UTF_8)
    except (LookupError, ValueError) as error:
        raise DatasetError(
            f"the encoding {stated!r} is not an encoding that Python knows, such as utf-16, "
            "cp1252, latin-1 or shift_jis"
        ) from error
    try:
        with open_file(path) as stream:
            head = stream.read(4)
    except OSError as error:
        raise DatasetError(
            f"{shown(path)} cannot be read ({error.strerror}); check the path"
        ) from error
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    name = marked or codecs.lookup(stated or UTF_8).name
    return UTF_8 if name == "utf-8-sig" else name


def _noted(encoding: str) -> dict[str, Any]:
    return {} if encoding == UTF_8 else {"encoding": encoding}


def _header(
    line: str, where: str, check_columns: CheckColumns, suffix: str
) -> tuple[str, list[str]]:
    """Return the separator and the columns."""
    by_suffix = sorted(_SEPARATORS, key=lambda s: s != "\t") if suffix == ".tsv" else _SEPARATORS
    most, reason = [""], "no column was found"
    for separator in by_suffix:
        columns: list[str] = []
        try:
            fields = next(csv.reader([line], delimiter=separator, strict=True))
            columns = [column.strip().lower() for column in fields]
            check_columns(columns)
        except (RowFault, csv.Error) as error:
            # Report the separator with the most columns, as the most likely one.
            if len(columns) > len(most) or most == [""]:
                most, reason = columns, str(error)
            continue
        return separator, columns
    raise DatasetError(
        f"{where}: the header is {','.join(most)!r}: {reason}; name the columns in the "
        "first line, such as path,caption,split, or with `columns=...`"
    )


def _check_stated(
    columns: Sequence[str], check_columns: CheckColumns, fields: Sequence[str]
) -> None:
    if len(fields) != len(columns):
        raise RowFault("columns", f"{len(fields)} fields found, {len(columns)} columns stated")
    check_columns(columns)


def _csv_records(
    path: Path, reader: Any, before: int, header: list[str], separator: str
) -> Iterator[tuple[int, dict[str, str] | RowFault]]:
    """Yield the rows of a `csv.reader`; `before` is the number of lines before its first."""
    while True:
        number = before + reader.line_num + 1
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise DatasetError(
                f"{path}, line {number}: this is not CSV ({error}); check the quotes from this "
                "line on"
            ) from error
        if values is None:
            return
        if len(values) == len(header):
            yield number, dict(zip(header, values, strict=True))
        elif values:
            reason = (
                f"{len(values)} fields found, {len(header)} expected ({separator.join(header)}); "
                f"texts with a {_SEPARATORS[separator]} need quotes"
            )
            named = "path" in header[: len(values)]
            image = values[header.index("path")].strip() if named else ""
            yield number, RowFault("wrong number of fields", reason, image)


def _records_of_lines(
    lines: Iterator[tuple[int, str]],
) -> Iterator[tuple[int, Mapping[str, Any] | RowFault]]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            yield number, _object(decode_given(line, dict[str, Any]))
        except SchemaError as error:
            yield number, RowFault("malformed line", str(error))


def _object(value: Any) -> Mapping[str, Any] | RowFault:
    if not isinstance(value, dict):
        return RowFault("malformed entry", f"an object was expected, found {value!r:.60}")
    return value


def _records_of_object(
    path: Path, value: dict[str, Any], check_columns: CheckColumns
) -> list[dict[str, Any]]:
    if "annotations" in value and "images" in value:
        raise DatasetError(f"{path} is in COCO's caption format; `pipeline prepare coco` reads it")
    if isinstance(value.get("images"), list) and len(value) <= 2:
        raise DatasetError(
            f"{path} is in Karpathy's split format; `pipeline prepare karpathy` reads it"
        )
    try:
        check_columns(list(value))
    except RowFault:
        if value and all(PurePosixPath(key).suffix for key in value):
            return captions_by_image(value)
    lengths = {len(item) if isinstance(item, list) else -1 for item in value.values()}
    if len(lengths) != 1 or -1 in lengths:
        keys = ", ".join(f"{key!r}" for key in list(value)[:10])
        raise DatasetError(
            f"{path}: found an object with {keys}; expected a list of objects, an object of lists "
            "of the same length, or of captions by file name"
        )
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
