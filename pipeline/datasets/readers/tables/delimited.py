"""CSV files and variants; the separator is detected from the header."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables.table import RowFault, Table
from pipeline.datasets.readers.tables.text_file import UTF_8, encoding_of, text_lines

SUFFIXES = (".csv", ".tsv", ".tab", ".psv", ".txt")

_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


def read_delimited(
    path: Path, check_columns: Callable[[Sequence[str]], object], encoding: str | None = None
) -> Table:
    """Return the rows of a text file with a header, by column in lower case.

    The separator is the first of comma, semicolon, tab and bar with a header for which
    `check_columns` does not raise `RowFault`. A row of another length is a `RowFault`; text that is
    not CSV raises while the records are read.
    """
    encoding = encoding_of(path, encoding)
    lines = text_lines(path, encoding)
    first = next(((number, line) for number, line in lines if line), None)
    if first is None:
        raise DatasetError(f"{path} is empty; expected a header and lines, or records")
    number, line = first
    separator, header = _header(line, f"{path}, line {number}", check_columns, path.suffix.lower())
    notes = {} if separator == "," else {"separator": _SEPARATORS[separator]}
    if encoding != UTF_8:
        notes["encoding"] = encoding
    reader = csv.reader((text + "\n" for _, text in lines), delimiter=separator, strict=True)
    return Table(str(path), "line", _records(path, reader, number, header, separator), notes=notes)


def _header(
    line: str, where: str, check_columns: Callable[[Sequence[str]], object], suffix: str
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
        if repeated := sorted({c for c in columns if columns.count(c) > 1}):
            raise DatasetError(
                f"{where}: the header has {', '.join(map(repr, repeated))} more than once; "
                "expected different columns"
            )
        return separator, columns
    raise DatasetError(
        f"{where}: the header is {','.join(most)!r}: {reason}; the first line must name the "
        "columns, such as path,caption,split"
    )


def _records(
    path: Path, reader: "Iterator[list[str]]", before: int, header: list[str], separator: str
) -> "Iterator[tuple[int, dict[str, str] | RowFault]]":
    """Yield the rows; `before` is the number of lines before the reader's first."""
    width = len(header)
    while True:
        number = before + reader.line_num + 1  # type: ignore[attr-defined]
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise DatasetError(
                f"{path}, line {number}: this is not CSV ({error}); check the quotes from this "
                "line on"
            ) from error
        if values is None:
            return
        if len(values) == width:
            yield number, dict(zip(header, values, strict=True))
        elif values:
            yield (
                number,
                RowFault(
                    "wrong number of fields",
                    f"{len(values)} fields found, {width} expected ({separator.join(header)}); "
                    f"texts with a {_SEPARATORS[separator]} need quotes",
                    values[header.index("path")].strip() if "path" in header[: len(values)] else "",
                ),
            )
