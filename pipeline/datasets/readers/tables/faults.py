"""Collection of invalid rows, which are all reported together, or skipped and listed in a file."""

import csv
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables.table import RowFault, Table
from pipeline.store.files import write_text

LEFT_OUT_FILE = "left-out.csv"

_SHOWN = 20


class _BadRow(NamedTuple):
    table: Table
    number: int
    path: str
    reason: str


class Faults:
    """Invalid rows of tables.

    Attributes
    ----------
    skip : bool. Skip them; otherwise any of them makes `check` raise.
    remedy : str. Remedy in the message, unless they are skipped.
    counts : Counter. Number of them by kind.
    """

    def __init__(
        self,
        skip: bool = False,
        remedy: str = "correct the source, or leave such rows out (`skip_bad=True`)",
    ) -> None:
        self.skip = skip
        self.remedy = remedy
        self.counts: Counter[str] = Counter()
        self._rows: list[_BadRow] = []

    def add(self, table: Table, number: int, fault: RowFault, path: str = "") -> None:
        """Record an invalid row of a table, for the image `path`."""
        self.counts[fault.kind] += 1
        if self.skip or len(self._rows) < _SHOWN:
            self._rows.append(_BadRow(table, number, fault.path or path, fault.reason))

    def check(self, kept: int) -> None:
        """Raise if there are invalid rows, unless they are skipped and others remain.

        Parameters
        ----------
        kept : int. Number of valid images.

        Raises
        ------
        DatasetError
            Names the first 20 of them and counts them by kind.
        """
        if not self.counts or (self.skip and kept):
            return
        remedy = "nothing is left without them" if self.skip else self.remedy
        if self.counts.total() == 1:
            bad = self._rows[0]
            text = f"{bad.table.place(bad.number)}: {bad.reason}"
        else:
            kinds = ", ".join(f"{kind}: {count}" for kind, count in self.counts.most_common())
            first = self._rows[0].table
            shown = "; ".join(
                (
                    f"{bad.table.unit} {bad.number}"
                    if bad.table is first
                    else bad.table.place(bad.number)
                )
                + f": {bad.reason}"
                for bad in self._rows[:_SHOWN]
            )
            more = f", the first {_SHOWN} are" if self.counts.total() > _SHOWN else ""
            text = (
                f"{first.name}: {self.counts.total()} {first.unit}s cannot be used "
                f"({kinds}){more}: {shown}"
            )
        raise DatasetError(f"{text}; {remedy}")

    def write(self, folder: Path) -> None:
        """Write `left-out.csv` (source, line, path, reason); remove it without invalid rows."""
        path = folder / LEFT_OUT_FILE
        if not self._rows:
            path.unlink(missing_ok=True)
            return
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("source", "line", "path", "reason"))
        for bad in self._rows:
            writer.writerow((bad.table.name, bad.number, bad.path, bad.reason))
        write_text(path, text.getvalue())
