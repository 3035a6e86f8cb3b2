"""Records of a source with their locations, why one is invalid, and the collection of such rows."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.datasets.checks import DatasetError
from pipeline.store.files import write_text
from pipeline.store.wording import csv_text

LEFT_OUT_FILE = "left-out.csv"

_SHOWN = 20


class RowFault(Exception):
    """Reason why a row of a table is invalid."""

    def __init__(self, kind: str, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.kind: str = kind  # category for counting, such as "image not found"
        self.reason: str = reason  # complete message without the location
        self.path: str = path  # of the image, if known


@dataclass(eq=False)
class Table:
    """Records of one file, or of one object in memory."""

    name: str  # path of the file, or description of the object; for messages
    unit: str  # noun for a record: "line", "entry", "row", "sample"
    # Number from 1 and values by column of each record, or why it is invalid.
    records: Iterator[tuple[int, Mapping[str, Any] | RowFault]]
    folder: str = ""  # below the image root, to which paths are relative
    split: str | None = None  # of all records; None: that of the split column, if any
    images_inside: bool = False  # images are stored with the records
    notes: dict[str, Any] = field(default_factory=dict)  # found while reading, such as a separator

    def place(self, number: int) -> str:
        """Return the location of a record, such as "captions.csv, line 7"."""
        return f"{self.name}, {self.unit} {number}"


class _BadRow(NamedTuple):
    table: Table
    number: int
    path: str
    reason: str


class RejectedRows:
    """Invalid rows of tables: reported together by `check`, or skipped and listed in a file."""

    def __init__(
        self,
        skip: bool = False,
        remedy: str = "correct the source, or leave such rows out (`skip_bad=True`)",
    ) -> None:
        self.skip = skip
        self.remedy = remedy
        self.counts: Counter[str] = Counter()  # by kind
        self._rows: list[_BadRow] = []

    def add(self, table: Table, number: int, error: RowFault, path: str = "") -> None:
        """Record an invalid row of a table, for the image `path`."""
        self.counts[error.kind] += 1
        if self.skip or len(self._rows) < _SHOWN:
            self._rows.append(_BadRow(table, number, error.path or path, error.reason))

    def notes(self) -> dict[str, Any]:
        """Return the note on skipped rows, if there are any."""
        return {"rows_left_out": dict(sorted(self.counts.items()))} if self.counts else {}

    def check(self, num_valid: int) -> None:
        """Raise if there are invalid rows, unless they are skipped and others remain."""
        if not self.counts or (self.skip and num_valid):
            return
        remedy = "nothing is left without them" if self.skip else self.remedy
        total, first = self.counts.total(), self._rows[0].table
        if total == 1:
            bad = self._rows[0]
            raise DatasetError(f"{first.place(bad.number)}: {bad.reason}; {remedy}")
        kinds = ", ".join(f"{kind}: {count}" for kind, count in self.counts.most_common())
        more = f", the first {_SHOWN} are" if total > _SHOWN else ""
        shown = "; ".join(
            f"{bad.table.place(bad.number).removeprefix(f'{first.name}, ')}: {bad.reason}"
            for bad in self._rows[:_SHOWN]
        )
        raise DatasetError(
            f"{first.name}: {total} {first.unit}s cannot be used ({kinds}){more}: {shown}; {remedy}"
        )

    def write(self, folder: Path) -> None:
        """Write `left-out.csv` (source, line, path, reason); remove it without invalid rows."""
        path = folder / LEFT_OUT_FILE
        if not self._rows:
            path.unlink(missing_ok=True)
            return
        rows = ((bad.table.name, bad.number, bad.path, bad.reason) for bad in self._rows)
        write_text(path, csv_text([("source", "line", "path", "reason"), *rows]))
