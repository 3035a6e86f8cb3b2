"""Retrieval numbers printed in the papers, row by row of their tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from pipeline.retrieval.measures import MEASURES, RSUM, Column
from pipeline.store.files import parse_json

PUBLISHED_FILE = "published.json"
"""Data file next to this module; docs/lab/published.md explains how to read and extend it."""

DIRECTIONS = ("image_to_text", "text_to_image", "video_to_text", "phrase_to_region")
"""Directions of retrieval, query first."""

# "map" is that of the papers: our tables have none.
_METRICS = (*(measure.column for measure in MEASURES), Column("map"))
COLUMNS = {f"{direction}_{of.name}": of for direction in DIRECTIONS for of in _METRICS}
COLUMNS[RSUM.name] = RSUM
"""Columns of a row: `<direction>_<metric>` and `rsum`, mostly the names of a recall table."""


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


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return all rows in file order; rows of a table are in printed order."""
    file = resources.files("pipeline.web.report") / PUBLISHED_FILE
    rows = []
    for table in parse_json(file.read_text(encoding="utf-8"))["tables"]:
        columns, entries = table.pop("columns"), table.pop("rows")
        for entry in entries:
            printed = zip(columns, entry["values"], strict=True)
            values = MappingProxyType({c: text for c, text in printed if text is not None})
            # Texts of a table are the defaults of its rows.
            rows.append(PublishedRow(**{**table, **entry, "values": values}))
    return tuple(rows)


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
        values = [COLUMNS[c].text(v) for c, v in zip(columns, figures, strict=True)]
        lines.append([f"ours: {name}", *values])
    for row in rows:
        what = ", ".join(filter(None, (row.system, row.image_feature, row.text_feature)))
        lines.append([f"{row.paper}: {what}", *(row.values[column] for column in columns)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
