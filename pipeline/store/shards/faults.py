"""Results of a check of features: each defect with its location, and what was checked."""

from dataclasses import dataclass, field

from pipeline.store.shards.index import INDEX_FILE
from pipeline.store.wording import counted


@dataclass(frozen=True, slots=True)
class Fault:
    """A defect of stored features, with its location."""

    file: str
    text: str
    row: int | None = None  # number in the file, if the defect is of one row
    id: str | None = None

    def __str__(self) -> str:
        where = self.file
        if self.row is not None:
            where += f", row {self.row}"
        if self.id is not None:
            where += f", id {self.id!r}"
        return f"{where}: {self.text}"


@dataclass
class Verification:
    """Result of a check."""

    quick: bool = False
    """Features and checksums were not read."""
    faults: list[Fault] = field(default_factory=list)
    rows: int = 0
    indexed: bool = False
    """The index has checksums of all bytes; a shard without one has only those of its rows."""
    sources: int | None = None
    """Number of rows whose source was compared; None: not requested."""

    def counts(self) -> str:
        """Return the numbers of rows, sources and defects, for a log line."""
        sources = "" if self.sources is None else f", {counted(self.sources, 'source')} compared"
        return f"{counted(self.rows, 'row')} checked{sources}, {counted(len(self.faults), 'fault')}"

    def notes(self) -> list[str]:
        """Return one line for each check that was impossible or not requested."""
        lines = []
        if self.sources == 0:
            lines.append("source_crc32 is 0 (unknown) in all rows: no source could be compared")
        if self.quick:
            lines.append("features and checksums were not read (`quick=True`)")
        elif not self.indexed:
            lines.append(f"no {INDEX_FILE}: only the CRC-32 of each row could be compared")
        return lines
