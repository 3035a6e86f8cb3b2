"""What a check of features finds: every fault with its place, and how much was looked at."""

from dataclasses import dataclass, field

from pipeline.shards.index import INDEX_FILE
from pipeline.wording import counted


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it was written, and where."""

    file: str
    text: str
    row: int | None = None
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
    """What was checked, and what was found.

    Attributes
    ----------
    quick : whether features and checksums were left out.
    faults : all of them. rows : how many were looked at.
    indexed : whether an index vouches for every byte; without one a shard has only the
        checksums of its rows.
    sources : rows whose source was compared; None: no sources were asked for.
    """

    quick: bool = False
    faults: list[Fault] = field(default_factory=list)
    rows: int = 0
    indexed: bool = False
    sources: int | None = None

    def counts(self) -> str:
        """Return the numbers of rows, sources and faults, for a log line."""
        sources = "" if self.sources is None else f", {counted(self.sources, 'source')} compared"
        return f"{counted(self.rows, 'row')} checked{sources}, {counted(len(self.faults), 'fault')}"

    def notes(self) -> list[str]:
        """Return a line for each check that could not be made, or was not asked for."""
        lines = []
        if self.sources == 0:
            lines.append(
                "no row says what its source was (source_crc32 is 0): none could be compared"
            )
        if self.quick:
            lines.append("features and checksums were not read (`quick=True`)")
        elif not self.indexed:
            lines.append(f"without an {INDEX_FILE} only the rows' own checksums could be compared")
        return lines
