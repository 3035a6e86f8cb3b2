"""Fills the tables of the laboratory from docs/lab/tables/, and each figure that a page quotes.

    python docs/tools/figures.py [PAGE...]

A page of the laboratory has `<!--table NAME-->` and `<!--/table-->` around a table, which is that
of docs/lab/tables/NAME.json. README and all pages quote a cell by table, row and column:
`<!--=NAME; ROW; COLUMN-->386.4<!--/-->`. The comments are invisible wherever Markdown is shown.
"""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
TABLES = PROJECT / "docs" / "lab" / "tables"
QUOTED = re.compile(r"<!--=([^;>]+); ([^;>]+); ([^;>]+)-->(.*?)<!--/-->", re.DOTALL)
TABLE = re.compile(r"<!--table (\S+)-->\n(.*?)<!--/table-->", re.DOTALL)
_NUMBER = re.compile(r"([-+≤<~]?\d[\d.,]*( (s|ms|h|min|MB|GB|kB|%))?)?")
_MARKUP = re.compile(r"[`*]|\[([^\]]*)\]\([^)]*\)")


class FigureError(ValueError):
    """A page quotes a table, row or column that does not exist."""


@dataclass(frozen=True)
class Row:
    """A row of a table: its cells, the name by which it is quoted, and the mark of its source."""

    cells: tuple[str, ...]
    name: str
    mark: str


@dataclass(frozen=True)
class Table:
    """A table, and by mark the command, processor and seeds that its rows are from."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    sources: dict[str, dict[str, str]]

    def cell(self, row: str, column: str) -> str:
        """Return the text of a cell."""
        rows = [one for one in self.rows if one.name == row]
        if len(rows) != 1:
            raise FigureError(f"{self.name}: {len(rows)} rows are called {row!r}, not one")
        titles = [plain(title) for title in self.columns]
        if titles.count(column) != 1:
            raise FigureError(f"{self.name}: columns are {titles}, not one {column!r}")
        return rows[0].cells[titles.index(column)]

    def markdown(self) -> str:
        """Return the table with its sources below it."""
        numeric = [
            all(_NUMBER.fullmatch(plain(row.cells[at])) for row in self.rows)
            for at in range(len(self.columns))
        ]
        lines = [self.columns, ["---:" if right else "---" for right in numeric]]
        for row in self.rows:
            first = f"{row.cells[0]} {row.mark}".strip()
            lines.append((first, *row.cells[1:]))
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join([table, "  \n".join(map(_source, self.sources.items()))])


def _source(entry: tuple[str, dict[str, str]]) -> str:
    mark, source = entry
    command = f"`{source['command']}`" if source["command"] else "no command"
    parts = [source.get("processor", ""), source.get("seeds", ""), source.get("note", "")]
    return f"{mark + ': ' if mark else ''}{'; '.join([command, *filter(None, parts)])}."


def plain(text: str) -> str:
    """Return a cell without emphasis, code marks and addresses of links."""
    return _MARKUP.sub(lambda hit: hit[1] or "", text).strip()


@cache
def table(name: str) -> Table:
    """Read docs/lab/tables/NAME.json.

    Raises
    ------
    FigureError
        There is no such table, or a row has another number of cells, an unknown source or no
        commit: the first that states its figures.
    """
    path = TABLES / f"{name}.json"
    if not path.is_file():
        raise FigureError(f"{path.relative_to(PROJECT)} does not exist")
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for row in stored["rows"]:
        cells, mark = tuple(row["cells"]), row.get("mark", "")
        if len(cells) != len(stored["columns"]):
            raise FigureError(f"{name}: {cells[0]} has {len(cells)} cells")
        if mark not in stored["sources"]:
            raise FigureError(f"{name}: {cells[0]} has the unknown source {mark!r}")
        if not row.get("commit"):
            raise FigureError(f"{name}: {cells[0]} has no commit")
        rows.append(Row(cells, row.get("name", plain(cells[0])), mark))
    return Table(name, tuple(stored["columns"]), tuple(rows), stored["sources"])


def filled(text: str) -> str:
    """Return a page with its tables and quoted figures as the laboratory has them.

    Raises
    ------
    FigureError
        A quoted figure does not exist, or is the first of its line: Markdown ends the paragraph.
    """
    if first := re.search(r"^ *(?:[-*] )?<!--=.*", text, re.MULTILINE):
        raise FigureError(f"a line must not begin with a quoted figure: {first[0]}")
    text = TABLE.sub(
        lambda hit: f"<!--table {hit[1]}-->\n\n{table(hit[1]).markdown()}\n\n<!--/table-->", text
    )
    return QUOTED.sub(
        lambda hit: "".join(
            [hit[0].partition("-->")[0], "-->", table(hit[1]).cell(hit[2], hit[3]), "<!--/-->"]
        ),
        text,
    )


def pages() -> list[Path]:
    """Return README and all pages of docs/."""
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def main(given: Sequence[str]) -> None:
    """Fill the given pages, or all."""
    for page in [Path(path) for path in given] or pages():
        before = page.read_text(encoding="utf-8")
        if (after := filled(before)) != before:
            page.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{page}: filled\n")


if __name__ == "__main__":
    main(sys.argv[1:])
