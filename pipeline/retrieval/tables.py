"""Recall tables, of one or all experiments, as JSON, CSV and Markdown."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.measures import (
    COLUMNS,
    COUNTS,
    METRICS,
    PROTOCOL_COLUMNS,
    SMALL_COLUMNS,
    table_legend,
)
from pipeline.retrieval.ranking.small_galleries import SMALL, chance_rows, warning_of
from pipeline.store.files import write_json, write_text
from pipeline.store.schema import SchemaError, convert, decode
from pipeline.store.wording import csv_text

Recall = Mapping[str, float | int]
"""A recall table of `pipeline.retrieval.ranking.recall.recall_table` or of a protocol."""

Row = Mapping[str, float | int | str]
"""A recall table with text columns, such as "dataset", "text encoder" or "weights"."""

RECALL_FILE, PROVENANCE_FILE = "recall.json", "provenance.json"
"""File name of an experiment's table, and of its provenance, in the experiment's folder."""

_FURTHER = (*PROTOCOL_COLUMNS, *(name for name in SMALL_COLUMNS if name not in PROTOCOL_COLUMNS))
RELEVANCE_FILE = "relevance.json"
"""File of the figures of relevance judgments, next to the table."""

SEEN, SEEN_SIGN = "has seen", "†"
"""Column that states which data of the evaluated dataset an encoder was trained on, and that the
head was trained on the evaluated split itself; and the sign of such rows."""
SEEN_LEGEND = (
    f"{SEEN_SIGN}: an encoder of this row was trained on images or captions of this dataset, or "
    "its head on the split that is ranked; its figures do not compare with those of rows without "
    "the sign."
)
_INTERVAL_LEGEND = "±: half the width of the 95 % bootstrap interval."
_BOUNDS_LEGEND = "In brackets the 95 % bootstrap interval; chance: a random order of this gallery."


def write_recall(folder: Path, recall: Recall) -> tuple[Path, Path]:
    """Write an experiment's `recall.json` (flat, as DVC reads metrics) and `recall.csv`."""
    _check_recall("the recall table", recall)
    as_json, as_csv = folder / RECALL_FILE, folder / "recall.csv"
    write_json(as_json, dict(recall))
    write_text(as_csv, _csv([recall], _columns([recall])))
    return as_json, as_csv


def read_recall(path: Path) -> dict[str, float | int]:
    """Read and validate a `recall.json`."""
    try:
        table = decode(path.read_bytes(), dict[str, Any])
    except FileNotFoundError as error:
        raise EmbeddingsError(
            f"{path}: no such recall table; `pipeline evaluate` writes it"
        ) from error
    except SchemaError as error:
        raise EmbeddingsError(f"{path} is corrupt ({error}); evaluate again") from error
    _check_recall(str(path), table)
    return table


def read_provenance(path: Path) -> dict[str, Any]:
    """Read a `provenance.json`, which has the embedding file's provenance."""
    try:
        provenance = decode(path.read_bytes(), dict[str, Any])
        convert(provenance.get("provenance"), dict[str, Any])
    except SchemaError as error:
        raise EmbeddingsError(
            f"{path} is corrupt ({error}); run `pipeline evaluate` again"
        ) from error
    return provenance


def write_joint_table(folder: Path, experiments: Mapping[str, Row]) -> tuple[Path, Path, Path]:
    """Write `recall.json`, `recall.csv` and `recall.md` over all experiments, in their order."""
    rows = _joint_rows(experiments)
    paths = folder / "recall.json", folder / "recall.csv", folder / "recall.md"
    write_json(paths[0], rows)
    write_text(paths[1], _csv(rows, ("experiment", *_columns(rows))))
    write_text(paths[2], markdown_table(experiments))
    return paths


def markdown_table(experiments: Mapping[str, Row]) -> str:
    """Return the joint table as Markdown that is also readable as plain text.

    Two aligned tables: the metrics, one direction after the other, then the description of each row
    (its text columns and counts). Small galleries have a last row with chance levels, and very
    small ones a warning.
    """
    rows = _joint_rows(experiments)
    hidden = {*METRICS, *_FURTHER} - {"num_folds"}
    rest = [column for column in _columns(rows) if column not in hidden]
    figures = _aligned([*rows, *chance_rows(rows)], ["experiment", *METRICS])
    tables = [figures, _aligned(rows, ["experiment", *rest])]
    legend = table_legend()
    if any("rsum_low" in row and not _has_bounds(row) for row in rows):
        legend = f"{legend} {_INTERVAL_LEGEND}"
    if any(_has_bounds(row) for row in rows):
        legend = f"{legend} {_BOUNDS_LEGEND}"
    if warning := warning_of(rows):
        legend = f"{legend}\n\n{warning}"
    if any(row.get(SEEN) for row in rows):
        legend = f"{legend}\n\n{SEEN_LEGEND}"
    return f"{tables[0]}\n{legend}\n\n{tables[1]}"


def _aligned(rows: Sequence[Row], columns: Sequence[str]) -> str:
    cells = [[_escaped(_title(column)) for column in columns]]
    cells += [[_cell(column, row) for column in columns] for row in rows]
    widths = [max(3, *(len(line[k]) for line in cells)) for k in range(len(columns))]
    right = [column in COLUMNS for column in columns]
    lines = [
        [
            cell.rjust(w) if r else cell.ljust(w)
            for cell, w, r in zip(line, widths, right, strict=True)
        ]
        for line in cells
    ]
    rule = [f"{'-' * (w - 1)}{':' if r else '-'}" for w, r in zip(widths, right, strict=True)]
    return "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]])


def _joint_rows(experiments: Mapping[str, Row]) -> list[dict[str, float | int | str]]:
    rows: list[dict[str, float | int | str]] = []
    for name, row in experiments.items():
        if "experiment" in row:
            raise EmbeddingsError(
                f"experiment {name!r} has a column 'experiment', which is reserved; rename it"
            )
        numeric = (*METRICS, *_FURTHER)
        numbers = {c: v for c, v in row.items() if c in numeric or not isinstance(v, str)}
        _check_recall(f"experiment {name!r}", numbers)
        rows.append({"experiment": name, **row})
    return rows


def _columns(rows: Sequence[Row]) -> list[str]:
    """Return all columns except the experiment's name: text first, then numbers."""
    there = dict.fromkeys(column for row in rows for column in row)
    others = ("experiment", *METRICS, *COUNTS, *_FURTHER)
    texts = [column for column in there if column not in others]
    extras = [column for column in _FURTHER if column in there]
    return [*texts, *METRICS, *COUNTS, *extras]


def _check_recall(what: str, recall: Mapping[str, Any]) -> None:
    # A protocol adds all of its columns or none, as does a small gallery.
    added = {name for name in _FURTHER if name in recall}
    small = not added <= {*PROTOCOL_COLUMNS}
    protocol = bool(added) if not small else not added <= {*SMALL_COLUMNS}
    further = [*PROTOCOL_COLUMNS] * protocol + [*SMALL_COLUMNS] * small
    expected = dict.fromkeys((*METRICS, *COUNTS, *further))
    missing = [name for name in expected if name not in recall]
    surplus = [name for name in recall if name not in expected]
    if missing or surplus:
        raise EmbeddingsError(
            f"{what}: missing columns {missing}, unknown columns {surplus}; expected exactly "
            + ", ".join(expected)
        )
    for name, value in recall.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise EmbeddingsError(f"{what}: column {name!r} is {value!r}, expected a finite number")


def _csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return CSV with quoted text, bare numbers, and empty cells for missing text."""
    cells = ([row.get(column, "") for column in columns] for row in rows)
    return csv_text([columns, *cells], quoted=True)


def _cell(column: str, row: Row) -> str:
    value = row.get(column, "")
    if column == "experiment" and row.get(SEEN):
        return f"{_escaped(str(value))} {SEEN_SIGN}"
    if isinstance(value, str):
        return _escaped(value) or "–"
    if column == "rsum" and _has_bounds(row):
        return f"{value:.1f} ({row['rsum_low']:.1f}–{row['rsum_high']:.1f})"
    if column == "rsum" and "rsum_low" in row:
        return f"{value:.1f} ±{(float(row['rsum_high']) - float(row['rsum_low'])) / 2:.1f}"
    return COLUMNS[column].text(value)


def _title(column: str) -> str:
    return COLUMNS[column].title if column in COLUMNS else column


def _has_bounds(row: Row) -> bool:
    """Return whether a row's interval is shown by its bounds: asymmetric for few images."""
    return "rsum_low" in row and int(row["num_images"]) < SMALL


def _escaped(text: str) -> str:
    """Return one line of plain text with Markdown and HTML markup escaped."""
    line = " ".join(text.split())
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        line = line.replace(mark, entity)
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", line)
