"""Retrieval numbers printed in the papers, row by row of their tables."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from pipeline.retrieval.measures import CUTOFFS, MEASURES, RSUM, Column
from pipeline.store.errors import FileReadError
from pipeline.store.files import parse_json

PUBLISHED_FILE = "published.json"
"""Data file next to this module; docs/published.md explains how to read and extend it."""

DIRECTIONS = ("image_to_text", "text_to_image", "video_to_text", "phrase_to_region")
"""Directions of retrieval, query first."""

# "map" is that of the papers: our tables have none.
_METRICS = {of.name: of for of in (*(m.column for m in MEASURES), Column("map"))}
_COLUMNS = {f"{d}_{name}": of for d in DIRECTIONS for name, of in _METRICS.items()}
_COLUMNS[RSUM.name] = RSUM
METRICS, COLUMNS = tuple(_METRICS), tuple(_COLUMNS)
"""Columns of a row: `<direction>_<metric>` and `rsum`, mostly the names of a recall table."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True)
class PublishedRow:
    """Numbers of one system on one dataset, as printed in a table; "" for what is not stated."""

    paper: str  # short name of the paper, such as "wang-2016"
    table: str  # table number as printed, or the section of numbers in the text
    dataset: str  # name of the dataset in this project if it has one, such as "flickr30k"
    protocol: str  # gallery and queries
    system: str  # name of the row as printed, without citation marks
    values: Mapping[str, str]
    """Printed number by column of `COLUMNS`, as text, so that 66.70 stays 66.70."""
    quoted_from: str = ""  # source that the paper cites for the row; "" for its own measurements
    image_feature: str = ""  # input features of the system
    text_feature: str = ""
    experiment: str = ""
    """Experiment of this project with the same method, with any features, or ""."""
    remark: str = ""


_TEXTS = tuple(field.name for field in fields(PublishedRow) if field.name != "values")
_REQUIRED = ("paper", "table", "dataset", "protocol", "system")
_KEY = (*_REQUIRED, "quoted_from", "image_feature", "text_feature")


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return all rows in file order; rows of a table are in printed order."""
    file = resources.files("pipeline.web.report") / PUBLISHED_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FileReadError(
            f"{PUBLISHED_FILE}: missing from the installed package pipeline.web.report; install "
            "the package again"
        ) from error
    return parse_published(text, PUBLISHED_FILE)


def published_for(experiment: str, dataset: str) -> tuple[PublishedRow, ...]:
    """Return the published rows of an experiment on a dataset, one per pair of features."""
    return tuple(
        row
        for row in published_rows()
        if experiment and (row.experiment, row.dataset) == (experiment, dataset)
    )


def localized_rows() -> dict[str, dict[str, str]]:
    """Return the printed figures of phrase localization by paper, table and system."""
    return {
        f"{row.paper}, table {row.table}: {row.system}": dict(row.values)
        for row in published_rows()
        if any(column.startswith("phrase_to_region") for column in row.values)
    }


def beside_published(dataset: str, tables: Mapping[str, Mapping[str, float | int]]) -> str:
    """Return Markdown of recall tables of clips and the printed rows of their dataset, or ""."""
    rows = [row for row in published_rows() if row.dataset == dataset]
    columns = list(dict.fromkeys(column for row in rows for column in row.values))
    if not rows:
        return ""
    lines = [["system", *columns], ["---", *["---:"] * len(columns)]]
    for name, table in tables.items():
        figures = [table[column.replace("video_to_text", "image_to_text")] for column in columns]
        values = [_COLUMNS[c].text(v) for c, v in zip(columns, figures, strict=True)]
        lines.append([f"ours: {name}", *values])
    for row in rows:
        what = ", ".join(filter(None, (row.system, row.image_feature, row.text_feature)))
        lines.append([f"{row.paper}: {what}", *(row.values[column] for column in columns)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def parse_published(text: str, where: str) -> tuple[PublishedRow, ...]:
    """Parse and validate a file of published numbers."""
    try:
        tables = parse_json(text)["tables"]
        rows = tuple(row for table in tables for row in _rows_of(table, where))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileReadError(
            f"{where}: is not JSON of tables with columns and rows "
            f"({type(error).__name__}: {error}); see docs/published.md"
        ) from error
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        key = tuple(getattr(row, name) for name in _KEY)
        if key in seen:
            raise FileReadError(
                f"{_where(where, row)}: there twice; rows must differ in one of {', '.join(_KEY)}"
            )
        seen.add(key)
    return rows


def _rows_of(table: Mapping[str, Any], where: str) -> Iterator[PublishedRow]:
    """Yield the rows of a table; texts of the table are the defaults of its rows."""
    shared = {name: value for name, value in table.items() if name not in ("columns", "rows")}
    columns = table["columns"]
    for entry in table["rows"]:
        texts = shared | {name: value for name, value in entry.items() if name != "values"}
        unknown = [name for name in texts if name not in _TEXTS]
        missing = [name for name in _REQUIRED if not texts.get(name)]
        wrong = [name for name, value in texts.items() if not isinstance(value, str)]
        if unknown or missing or wrong:
            raise FileReadError(
                f"{where}, table {shared.get('table')!r} of {shared.get('paper')!r}: a row has "
                f"unknown fields {unknown}, lacks {missing}, and has no text in {wrong}; "
                f"expected texts out of {', '.join(_TEXTS)}"
            )
        row = PublishedRow(**texts, values=MappingProxyType({}))
        values = entry["values"]
        if len(values) != len(columns) or len(set(columns)) != len(columns):
            raise FileReadError(
                f"{_where(where, row)}: {len(values)} values for the columns {columns}; expected "
                "one value a column, null where the paper prints none, and no column twice"
            )
        printed = {c: v for c, v in zip(columns, values, strict=True) if v is not None}
        _check_values(_where(where, row), printed)
        yield PublishedRow(**texts, values=MappingProxyType(printed))


def _check_values(where: str, values: Mapping[str, Any]) -> None:
    if not values:
        raise FileReadError(f"{where}: has no value; leave the row out and list it in the docs")
    for column, value in values.items():
        if column not in _COLUMNS:
            raise FileReadError(
                f"{where}: unknown column {column!r}; expected a direction of {DIRECTIONS} with "
                f"a metric of {METRICS}, as in 'image_to_text_r1', or 'rsum'"
            )
        least, most = _COLUMNS[column].limits
        if not isinstance(value, str) or not _NUMBER.fullmatch(value):
            raise FileReadError(
                f"{where}: {column} is {value!r}; expected the number's text as printed"
            )
        if not least <= float(value) <= most:
            raise FileReadError(
                f"{where}: {column} is {value}, outside {least:g} to {most:g}; compare the paper"
            )
    for direction in DIRECTIONS:
        recalls = [values[c] for k in CUTOFFS if (c := f"{direction}_r{k}") in values]
        if sorted(recalls, key=float) != recalls:
            raise FileReadError(
                f"{where}: {direction} R@K falls as K grows, {recalls}; compare the paper"
            )


def _where(where: str, row: PublishedRow) -> str:
    features = ", ".join(filter(None, (row.image_feature, row.text_feature)))
    return f"{where}, {row.paper} table {row.table}, {row.dataset}, {row.system!r} ({features})"
