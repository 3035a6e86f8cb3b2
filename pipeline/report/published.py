"""The papers' own retrieval numbers, as printed, row by row of their tables."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from pipeline.errors import PipelineError
from pipeline.files import parse_json
from pipeline.retrieval.recall import CUTOFFS

PUBLISHED_FILE = "published.json"
"""The data file, next to this module; docs/published.md explains how to read and extend it."""

DIRECTIONS = ("image_to_text", "text_to_image", "video_to_text", "phrase_to_region")
"""The query comes first."""

# Smallest and largest possible value of each metric; a mean inverted rank is not a percentage.
_LIMITS: dict[str, tuple[float, float]] = {
    **{f"r{k}": (0, 100) for k in CUTOFFS},
    "map": (0, 100),
    "median_rank": (1, float("inf")),
    "mean_rank": (1, float("inf")),
    "mean_inverted_rank": (0, 1),
}
METRICS = tuple(_LIMITS)
_COLUMN_LIMITS = {f"{d}_{m}": limits for d in DIRECTIONS for m, limits in _LIMITS.items()} | {
    "rsum": (0, 600)
}
COLUMNS = tuple(_COLUMN_LIMITS)
"""`<direction>_<metric>` and `rsum`: the names of a recall table, and a few more."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


class PublishedError(PipelineError):
    """The file of published numbers is damaged, or was extended wrongly."""


@dataclass(frozen=True)
class PublishedRow:
    """One system on one dataset, as printed in a paper's table; "" where the paper has nothing.

    Attributes
    ----------
    paper : str. Such as "wang-2016".
    table : str. The table's number as printed, or the section of numbers in the text.
    dataset : str. Such as "flickr30k"; the names of this project where it has the dataset.
    protocol : str. The gallery and what counts as a query.
    system : str. The row's name as printed, without citation marks.
    quoted_from : str. The work that the row is cited from, "" for what the paper measured itself.
    image_feature, text_feature : str. What the system is fed with.
    experiment : str. This project's experiment with that method, over whatever features, or "".
    remark : str. What a reader of the numbers should know.
    values : mapping of str to str. Column of `COLUMNS` to the printed number, as text, so that
        66.70 stays 66.70; in the printed order. Percentages are 0-100, ranks count from 1.
    """

    paper: str
    table: str
    dataset: str
    protocol: str
    system: str
    values: Mapping[str, str]
    quoted_from: str = ""
    image_feature: str = ""
    text_feature: str = ""
    experiment: str = ""
    remark: str = ""


_TEXTS = tuple(field.name for field in fields(PublishedRow) if field.name != "values")
_REQUIRED = ("paper", "table", "dataset", "protocol", "system")
_KEY = (*_REQUIRED, "quoted_from", "image_feature", "text_feature")


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return all rows in the file's order, within a table in the printed order.

    Raises
    ------
    PublishedError
    """
    file = resources.files("pipeline.report") / PUBLISHED_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PublishedError(
            f"{PUBLISHED_FILE}: missing from the installed package pipeline.report; install the "
            "package again"
        ) from error
    return parse_published(text, PUBLISHED_FILE)


def published_for(experiment: str, dataset: str) -> tuple[PublishedRow, ...]:
    """Return the rows that an experiment on a dataset is to be held against, often none.

    There is one row for each pair of features that the paper tried with the method: use the
    one whose features are yours, or show its features with it.
    """
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
    """Return Markdown of recall tables of clips above the printed rows of their dataset.

    It is "" for a dataset without any.

    Parameters
    ----------
    dataset : str. Whose rows have the direction `video_to_text`.
    tables : mapping of str to mapping of str to float or int. Name to a table, whose
        `image_to_text` is that direction.
    """
    rows = [row for row in published_rows() if row.dataset == dataset]
    columns = list(dict.fromkeys(column for row in rows for column in row.values))
    if not rows:
        return ""
    lines = [["system", *columns], ["---", *["---:"] * len(columns)]]
    for name, table in tables.items():
        found = [table[column.replace("video_to_text", "image_to_text")] for column in columns]
        digits = ["3" if column.endswith("inverted_rank") else "1" for column in columns]
        values = [f"{v:.{d}f}" for v, d in zip(found, digits, strict=True)]
        lines.append([f"ours: {name}", *values])
    for row in rows:
        what = ", ".join(filter(None, (row.system, row.image_feature, row.text_feature)))
        lines.append([f"{row.paper}: {what}", *(row.values[column] for column in columns)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def parse_published(text: str, where: str) -> tuple[PublishedRow, ...]:
    """Read and check a file of published numbers.

    Parameters
    ----------
    text : JSON with a list `tables`; see docs/published.md.
    where : str. The file's name, for messages.

    Raises
    ------
    PublishedError
        The text is not such JSON; a field or column is unknown or missing; a number is not as
        printed numbers are, is out of its range, or falls from R@1 to R@10; or two rows are
        about the same.
    """
    try:
        tables = parse_json(text)["tables"]
        rows = tuple(row for table in tables for row in _rows_of(table, where))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PublishedError(
            f"{where}: is not JSON of tables with columns and rows "
            f"({type(error).__name__}: {error}); see docs/published.md"
        ) from error
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        key = tuple(getattr(row, name) for name in _KEY)
        if key in seen:
            raise PublishedError(
                f"{_place(where, row)}: there twice; rows must differ in one of {', '.join(_KEY)}"
            )
        seen.add(key)
    return rows


def _rows_of(table: Mapping[str, Any], where: str) -> Iterator[PublishedRow]:
    """Yield the rows of a table; its own texts hold for every row that does not replace them."""
    shared = {name: value for name, value in table.items() if name not in ("columns", "rows")}
    columns = table["columns"]
    for entry in table["rows"]:
        texts = shared | {name: value for name, value in entry.items() if name != "values"}
        unknown = [name for name in texts if name not in _TEXTS]
        missing = [name for name in _REQUIRED if not texts.get(name)]
        wrong = [name for name, value in texts.items() if not isinstance(value, str)]
        if unknown or missing or wrong:
            raise PublishedError(
                f"{where}, table {shared.get('table')!r} of {shared.get('paper')!r}: a row has "
                f"unknown fields {unknown}, lacks {missing}, and has no text in {wrong}; "
                f"expected texts out of {', '.join(_TEXTS)}"
            )
        row = PublishedRow(**texts, values=MappingProxyType({}))
        values = entry["values"]
        if len(values) != len(columns) or len(set(columns)) != len(columns):
            raise PublishedError(
                f"{_place(where, row)}: {len(values)} values for the columns {columns}; expected "
                "one value a column, null where the paper prints none, and no column twice"
            )
        printed = {c: v for c, v in zip(columns, values, strict=True) if v is not None}
        _check_values(_place(where, row), printed)
        yield PublishedRow(**texts, values=MappingProxyType(printed))


def _check_values(place: str, values: Mapping[str, Any]) -> None:
    if not values:
        raise PublishedError(f"{place}: has no value; leave the row out and list it in the docs")
    for column, value in values.items():
        if column not in _COLUMN_LIMITS:
            raise PublishedError(
                f"{place}: unknown column {column!r}; expected a direction of {DIRECTIONS} with "
                f"a metric of {METRICS}, as in 'image_to_text_r1', or 'rsum'"
            )
        least, most = _COLUMN_LIMITS[column]
        if not isinstance(value, str) or not _NUMBER.fullmatch(value):
            raise PublishedError(
                f"{place}: {column} is {value!r}; expected the number's text as printed"
            )
        if not least <= float(value) <= most:
            raise PublishedError(
                f"{place}: {column} is {value}, outside {least:g} to {most:g}; compare the paper"
            )
    for direction in DIRECTIONS:
        recalls = [values[c] for k in CUTOFFS if (c := f"{direction}_r{k}") in values]
        if sorted(recalls, key=float) != recalls:
            raise PublishedError(
                f"{place}: {direction} R@K falls as K grows, {recalls}; compare the paper"
            )


def _place(where: str, row: PublishedRow) -> str:
    features = ", ".join(filter(None, (row.image_feature, row.text_feature)))
    return f"{where}, {row.paper} table {row.table}, {row.dataset}, {row.system!r} ({features})"
