"""Records of a source with their locations, why one is invalid, and the collection of such rows."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.datasets.checks import DatasetError
from pipeline.store.files import write_text
from pipeline.store.wording import counted, csv_text

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


def captions_by_image(mapping: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """Return a record for each path of a mapping to its caption or list of captions."""
    return [{"path": path, "caption": captions} for path, captions in mapping.items()]


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
        self._rows: list[_BadRow] = []  # only if they are skipped
        self._first: dict[str, _BadRow] = {}  # by reason
        self._repeated: Counter[str] = Counter()
        self._files: defaultdict[str, set[str]] = defaultdict(set)  # by kind, if known

    def add(self, table: Table, number: int, error: RowFault, path: str = "") -> None:
        """Record an invalid row of a table, for the image `path`."""
        self.counts[error.kind] += 1
        row = _BadRow(table, number, error.path or path, error.reason)
        if row.path:
            self._files[error.kind].add(row.path)
        if self.skip:
            self._rows.append(row)
        if row.reason in self._first or len(self._first) < _SHOWN:
            self._first.setdefault(row.reason, row)
            self._repeated[row.reason] += 1

    def notes(self) -> dict[str, Any]:
        """Return the note on skipped rows, if there are any."""
        return {"rows_left_out": dict(sorted(self.counts.items()))} if self.counts else {}

    def check(self, num_valid: int) -> None:
        """Raise if there are invalid rows, unless they are skipped and others remain."""
        if not self.counts or (self.skip and num_valid):
            return
        remedy = "nothing is left without them" if self.skip else self.remedy
        total, bad = self.counts.total(), next(iter(self._first.values()))
        first = bad.table
        if total == 1:
            raise DatasetError(f"{first.place(bad.number)}: {bad.reason}; {remedy}")
        kinds = ", ".join(f"{k}: {n}{self._of_files(k)}" for k, n in self.counts.most_common())
        more = ", the first are" if total > self._repeated.total() else ""
        shown = "; ".join(
            f"{bad.table.place(bad.number).removeprefix(f'{first.name}, ')}"
            + (f" and {self._repeated[reason] - 1} more" if self._repeated[reason] > 1 else "")
            + f": {reason}"
            for reason, bad in self._first.items()
        )
        rows = counted(total, first.unit)
        raise DatasetError(
            f"{first.name}: {rows} cannot be used ({kinds}){more}: {shown}; {remedy}"
        )

    def _of_files(self, kind: str) -> str:
        """Return ", of 4 files" if a kind has several rows of a file, whose paths are known."""
        files = len(self._files[kind])
        return f", of {counted(files, 'file')}" if 0 < files < self.counts[kind] else ""

    def write(self, folder: Path) -> None:
        """Write `left-out.csv` (source, line, path, reason); remove it without invalid rows."""
        path = folder / LEFT_OUT_FILE
        if not self._rows:
            path.unlink(missing_ok=True)
            return
        rows = ((bad.table.name, bad.number, bad.path, bad.reason) for bad in self._rows)
        write_text(path, csv_text([("source", "line", "path", "reason"), *rows]))
