"""One unfinished shard: its pending rows, the files that have the others, and its assembly.

Any number of processes may compute one shard, for example if a worker believed lost continues. A
writer therefore only adds rows to a journal of its own, and renames a complete shard into place;
only the holder of the output's lock deletes files. No lock per shard is needed, so this also works
on file systems without locks.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.builder.journal import Journal, append_rows
from pipeline.store.hashing import sha256_of_file
from pipeline.store.packed import TextIndex
from pipeline.store.shards.format import (
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardEntry,
    ShardError,
    StoredBlock,
)
from pipeline.store.shards.plan import SHARD_BYTES, ShardPlan, Span, runs
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.shards.writer import stored_block, write_shard

PENDING, REUSABLE, STORED = range(3)
"""States of a row: to be computed; in an older shard; in a shard or journal of this work."""

States = npt.NDArray[np.uint8]

Inspect = Callable[[ShardFile, int], ShardEntry]
"""Verifies every byte of a shard with this first row, and returns its index entry."""

# Rows are flushed to the journal when the oldest has waited this long, or at this many bytes, which
# a shard of the default size reaches when it is complete.
FLUSH_SECONDS = 20.0
FLUSH_BYTES = SHARD_BYTES

JOURNAL = ".journal"
"""Ending of the files of finished rows."""

_COPY_BYTES = 1 << 24
_OPEN_FILES = 64


@dataclass(frozen=True)
class FinishedShard:
    """A verified shard."""

    path: Path
    entry: ShardEntry
    created_by: str  # software and versions that wrote it


def finished_shard(
    path: Path,
    header: FeatureHeader,
    ids: Sequence[str],
    first_row: int,
    inspect: Inspect = ShardFile.inspect,
) -> FinishedShard:
    """Verify every byte of a shard, and that it has exactly these rows and this recipe."""
    file = ShardFile(path)
    file.require(header, ids)
    created_by = str(file.attributes.get("created_by", "unknown"))
    return FinishedShard(path, inspect(file, first_row), created_by)


def shard_folder(work: Path, shard: int) -> Path:
    """Return the folder of a shard's files, so that nothing lists those of thousands of others."""
    return work / f"{shard:05d}"


def open_rows(path: Path, header: FeatureHeader) -> ShardFile | Journal:
    """Open a shard or journal; raise `OtherShard` if it has other features."""
    if path.suffix != ".h5":
        return Journal(path, header)
    file = ShardFile(path)
    if unlike := header.difference(file.metadata()):
        raise OtherShard(f"{path} {unlike}")
    return file


class UnfinishedShard:
    """A shard with pending rows; pickled for a worker, it has a state of its own there."""

    def __init__(
        self,
        work: Path,
        header: FeatureHeader,
        plan: ShardPlan,
        number: int,
        ids: Sequence[str],
        state: States,  # (rows,), a view of the build's
        compress: bool,
        older: Sequence[Path] = (),  # files with the reusable rows, best first
        replaces: FinishedShard | None = None,  # older version of the same rows
    ) -> None:
        """Describe a shard; `find_rows` finds its rows in journals."""
        self.work, self.header, self.number, self.ids = work, header, number, ids
        self.state, self.compress = state, compress
        self.path: Path = shard_folder(work, number) / plan.file_name(number)
        self.first_row: int = plan.span(number).start
        self.older: tuple[Path, ...] = (replaces.path,) if replaces else tuple(older)
        self._replaced = replaces and replaces.path == self.path and replaces.entry.sha256
        self._shards = plan.counts[number]
        self._journal: Path | None = None
        self._buffer: list[tuple[int, StoredBlock]] = []
        self._buffered_bytes, self._buffered_since = 0, 0.0

    def __getstate__(self) -> dict[str, Any]:
        # Each process has a journal of its own.
        return self.__dict__ | {"_journal": None, "_buffer": []}

    @property
    def complete(self) -> bool:
        """Whether no row is pending."""
        return not (self.state == PENDING).any()

    @property
    def pending(self) -> list[Span]:
        """The spans of pending rows, as positions in the shard."""
        return runs(np.flatnonzero(self.state == PENDING))

    def append(self, first: int, block: RowBlock) -> None:
        """Append pending rows from a position on; now and then flush them to the journal.

        The features are copied; a rejected block changes nothing.
        """
        stop = first + len(block)
        state = self.state[first:stop]
        if not 0 <= first < stop <= len(self.state) or (state != PENDING).any():
            next_rows = self.pending[:1] or [Span(0, 0)]
            raise ShardError(
                f"unexpected rows {self.first_row + first} to {self.first_row + stop - 1}: the "
                f"next pending rows are {self.first_row + next_rows[0].start} to "
                f"{self.first_row + next_rows[0].stop - 1}"
            )
        stored = stored_block(self.header, block, self.ids[first:stop])
        if not self._buffer:
            self._buffered_since = time.monotonic()
        self._buffer.append((first, stored))
        self._buffered_bytes += stored.features.nbytes
        state[:] = STORED
        waited = time.monotonic() - self._buffered_since
        # After the last pending row, the shard itself is written next.
        if (self._buffered_bytes >= FLUSH_BYTES or waited >= FLUSH_SECONDS) and not self.complete:
            self.flush()

    def flush(self) -> None:
        """Append the buffered rows to the journal."""
        if not self._buffer:
            return
        # Unique: a worker believed lost may write the same rows. After a failure, another one.
        journal = self._journal or self.path.with_name(f"{uuid.uuid4().hex[:12]}{JOURNAL}")
        self._journal = None
        journal.parent.mkdir(exist_ok=True)
        blocks = ((self.ids[first : first + len(b)], b) for first, b in self._buffer)
        append_rows(journal, self._fingerprint, self.header, blocks)
        self._journal, self._buffer, self._buffered_bytes = journal, [], 0

    def find_rows(self) -> list[str]:
        """Mark pending rows that a journal has as stored; return the errors of damaged files."""
        damaged: list[str] = []
        for _, rows in self._finished_rows(damaged):
            rows = rows[rows >= 0]
            self.state[rows[self.state[rows] == PENDING]] = STORED
        return damaged

    def finish(self, inspect: Inspect = ShardFile.inspect) -> FinishedShard:
        """Assemble the shard from older shards, journals and the buffer, and verify it."""
        write_shard(
            self.path, self.header, self.ids, self._blocks(), self.number, self._shards,
            self.compress,
        )  # fmt: skip
        return finished_shard(self.path, self.header, self.ids, self.first_row, inspect)

    def finished_before(self) -> FinishedShard | None:
        """Return the shard if a lost worker has finished it."""
        try:
            # With that SHA-256 it is the older version, of which some rows are recomputed.
            if not self.path.is_file() or sha256_of_file(self.path) == self._replaced:
                return None
            return finished_shard(self.path, self.header, self.ids, self.first_row)
        # Missing between the reads: the run has ended, or another worker has replaced the file.
        except (DamagedShard, OtherShard, FileNotFoundError):
            return None

    def remove_files(self) -> None:
        """Remove all files of the shard's folder except the shard."""
        for path in self.path.parent.iterdir():
            if path != self.path:
                path.unlink(missing_ok=True)

    @property
    def _fingerprint(self) -> str:
        return self.work.name[-16:]

    def _finished_rows(
        self, damaged: list[str]
    ) -> Iterator[tuple[ShardFile | Journal, RowNumbers]]:
        """Yield the files of finished rows, and the position of each row; -1: not in the shard."""
        folder = self.path.parent
        paths = sorted([*folder.glob(f"*{JOURNAL}"), *folder.glob("piece-*.h5")])
        index = TextIndex(self.ids if paths else ())
        for path in paths:
            try:
                file = open_rows(path, self.header)
                if isinstance(file, ShardFile):  # of a run that an older version began
                    file.inspect(0)
                elif file.work not in ("", self._fingerprint):
                    raise OtherShard(f"{path} belongs to other work, {file.work}")
            # A file that the system refuses to read is not damaged: that error ends the run.
            except (DamagedShard, OtherShard) as error:
                damaged.append(str(error))
                continue
            if isinstance(file, Journal) and file.damaged:
                damaged.append(f"{path}: rows between intact ones")
            yield file, index.rows_of(file.ids, len(file.ids))

    def _blocks(self) -> Iterator[StoredBlock]:
        """Yield all rows in order from where each is stored, a few MiB at a time."""
        # An update can need hundreds of older shards, each with an open file descriptor.
        older = lru_cache(maxsize=_OPEN_FILES)(lambda path: open_rows(path, self.header))
        holders: list[StoredBlock | ShardFile | Journal | Path] = []
        holder, at = np.full(len(self.state), -1), np.zeros(len(self.state), np.int64)

        def offer(
            file: StoredBlock | ShardFile | Journal | Path, rows: RowNumbers, of: int
        ) -> None:
            # The first holder of a row provides it. -1 reads the last entry, which is masked.
            chosen = np.flatnonzero((rows >= 0) & (self.state[rows] == of) & (holder[rows] < 0))
            holder[rows[chosen]], at[rows[chosen]] = len(holders), chosen
            holders.append(file)

        for first, block in self._buffer:
            offer(block, np.arange(first, first + len(block)), STORED)
        for file, rows in self._finished_rows([]):
            offer(file, rows, STORED)
        index = TextIndex(self.ids if self.older else ())
        for path in self.older:
            ids = older(path).ids
            offer(path, index.rows_of(ids, len(ids)), REUSABLE)
        if (lost := np.flatnonzero(holder < 0)).size:
            raise DamagedShard(
                f"{self.path.parent}: row {lost[0]}, id {self.ids[lost[0]]!r}, is corrupt or was "
                "deleted after it was finished; rerun the command, which recomputes it"
            )
        step = max(1, _COPY_BYTES // max(1, self.header.row_bytes))
        # Successive rows of one holder are read together.
        cuts = [0, *(np.flatnonzero(np.diff(holder)) + 1), len(holder)]
        for start, stop in pairwise(cuts):
            source = holders[holder[start]]
            if isinstance(source, Path):
                source = older(source)
            for part in Span(start, stop).batches(step):
                yield _take(source, at[part.start : part.stop])


def _take(source: StoredBlock | ShardFile | Journal, rows: RowNumbers) -> StoredBlock:
    if isinstance(source, StoredBlock):
        # Slicing successive rows copies nothing.
        successive = (np.diff(rows) == 1).all()
        features = source.features[slice(rows[0], rows[-1] + 1) if successive else rows]
    else:
        features = source.read_rows(rows)
    return StoredBlock.of(source, rows, features)
