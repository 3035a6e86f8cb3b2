"""An unfinished shard: its existing rows, the files that hold them, and its missing rows.

Finished rows are stored in *pieces*, small shards in the work folder with any rows of the shard, or
in older shards: a previous version of the shard of which only some rows are recomputed, or shards
of a set that is updated, with any rows in any order.

Several processes may compute one shard concurrently, for example when a worker believed lost
continues. Therefore a writer only adds files under unique names, and renames a complete shard into
place; only the holder of the output's lock deletes files. No per-shard lock is needed, so this also
works on file systems without locks.

All files of a shard are in its own subfolder of the work folder, so that listing them does not scan
the files of thousands of other shards.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.store.shards.format import (
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardError,
    StoredBlock,
)
from pipeline.store.shards.plan import ShardPlan, Span, runs
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.writer import stored_block, write_shard

# A piece is written when the oldest buffered row has waited this long, or at this many bytes.
PIECE_SECONDS = 20.0
PIECE_BYTES = 1 << 26

_COPY_BYTES = 1 << 24
_OPEN_FILES = 64


class PartialShard:
    """An unfinished shard with its finished pieces."""

    def __init__(
        self,
        work: Path,
        header: FeatureHeader,
        plan: ShardPlan,
        shard: int,
        ids: Sequence[str],
        older: Sequence[Path] = (),  # shards with the rows that are not missing, best first
    ) -> None:
        """Describe a shard without missing rows; `mark_missing` adds them."""
        self.work: Path = work
        self.header: FeatureHeader = header
        self.path: Path = shard_folder(work, shard) / plan.file_name(shard)
        self.span: Span = plan.span(shard)
        self.missing: tuple[Span, ...] = ()  # rows still to be computed, in order
        self.older: tuple[Path, ...] = tuple(older)
        self.ids: list[str] = list(ids)
        self._shard, self._shards = shard, plan.shards_then(shard)
        self._pieces: dict[Path, np.ndarray] = {}
        self._needed = np.zeros(len(self.span), bool)
        self._buffer: list[tuple[int, StoredBlock]] = []
        self._buffered_since = 0.0

    @property
    def rows_in_pieces(self) -> int:
        """Number of rows stored in pieces."""
        return sum(len(rows) for rows in self._pieces.values())

    @property
    def needed(self) -> list[Span]:
        """The spans of rows that are not copied from an older shard."""
        return runs(np.flatnonzero(self._needed) + self.span.start)

    def mark_missing(self, rows: np.ndarray) -> None:
        """Mark rows (n,) int64 of the feature set as missing, unless a piece has them."""
        self._needed[rows - self.span.start] = True
        there = np.zeros(len(self.span), bool)
        for positions in self._pieces.values():
            there[positions] = True
        absent = np.flatnonzero(self._needed & ~there)
        self.missing = tuple(runs(absent + self.span.start))

    def find_pieces(self) -> dict[Path, str]:
        """Find pieces of other processes; return the corrupt ones with their errors."""
        damaged = {}
        row = {row_id: number for number, row_id in enumerate(self.ids)}
        for path in piece_files(self.path.parent):
            if path in self._pieces:
                continue
            try:
                piece = ShardFile(path)
                # Raises unless all rows of the piece are rows of this shard.
                piece.require(self.header, [row_id for row_id in piece.ids if row_id in row])
                piece.inspect(0)
                self._pieces[path] = np.array([row[row_id] for row_id in piece.ids])
            # The holder of the lock deletes these. A piece that the system refuses to read is not
            # corrupt: that error ends the run.
            except (DamagedShard, OtherShard) as error:
                damaged[path] = str(error)
        return damaged

    def append(self, first_row: int, block: RowBlock) -> None:
        """Append finished rows, the next missing ones; periodically write a piece.

        The features are copied; a rejected block changes nothing.
        """
        stop = first_row + len(block)
        # Without missing rows: an empty span, which rejects every row.
        span, *others = self.missing or (Span(self.span.stop, self.span.stop),)
        if first_row != span.start or not first_row < stop <= span.stop:
            raise ShardError(
                f"unexpected rows {first_row} to {stop - 1}: the next pending rows are "
                f"{span.start} to {span.stop - 1}"
            )
        ids = self.ids[first_row - self.span.start : stop - self.span.start]
        stored = stored_block(self.header, block, ids)
        if not self._buffer:
            self._buffered_since = time.monotonic()
        self._buffer.append((first_row, stored))
        left = Span(stop, span.stop)
        self.missing = (left, *others) if len(left) else tuple(others)
        buffered = sum(len(block) for _, block in self._buffer) * self.header.row_bytes
        waited = time.monotonic() - self._buffered_since
        # After its last missing row, the shard itself is written next: no piece is needed.
        if self.missing and (buffered >= PIECE_BYTES or waited >= PIECE_SECONDS):
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows to a piece, in row order."""
        if not self._buffer:
            return
        rows = self._positions(self._buffer)
        # Unique: a worker believed lost may write a piece of the same rows.
        path = self.path.with_name(
            f"piece-{self.span.start + rows[0]:09d}-{self.span.start + rows[-1] + 1:09d}-"
            f"{uuid.uuid4().hex[:12]}.h5"
        )
        ids = [self.ids[row] for row in rows]
        write_shard(path, self.header, ids, (block for _, block in self._buffer), 0, 1)
        self._pieces[path] = rows
        self._buffer = []

    def finish(self, compress: bool) -> None:
        """Write the shard from older shards, pieces and buffered rows."""
        blocks = self._blocks()
        write_shard(self.path, self.header, self.ids, blocks, self._shard, self._shards, compress)

    def remove_pieces(self) -> None:
        """Remove the pieces of the shard and unfinished files of its writers."""
        for path in self.path.parent.iterdir():
            if path != self.path:
                path.unlink(missing_ok=True)

    def _blocks(self) -> Iterator[StoredBlock]:
        """Yield the shard's rows in order from where each is stored, a few MiB at a time."""
        # A shard can have hundreds of pieces, each with an open file descriptor.
        opened = lru_cache(maxsize=_OPEN_FILES)(ShardFile)
        # Holders of rows, each with the positions of its rows in the shard (-1: not in it) and the
        # positions that it may provide; the first holder of a row provides it. Older shards provide
        # no recomputed row.
        stored: list[tuple[Path | StoredBlock, np.ndarray, np.ndarray]] = []
        row = {row_id: number for number, row_id in enumerate(self.ids)}
        for path in self.older:
            rows = np.array([row.get(row_id, -1) for row_id in opened(path).ids])
            stored.append((path, rows, ~self._needed))
        stored += [(path, rows, self._needed) for path, rows in self._pieces.items()]
        for first, block in self._buffer:
            stored.append((block, self._positions([(first, block)]), self._needed))
        origin, at = np.full(len(self.span), -1), np.zeros(len(self.span), np.int64)
        for number, (_, rows, usable) in enumerate(stored):
            # -1 reads the last entry, which the first condition masks.
            chosen = np.flatnonzero((rows >= 0) & usable[rows] & (origin[rows] < 0))
            origin[rows[chosen]], at[rows[chosen]] = number, chosen
        step = max(1, _COPY_BYTES // max(1, self.header.row_bytes))
        # Successive rows of one holder are read together.
        cuts = [0, *(np.flatnonzero(np.diff(origin)) + 1), len(origin)]
        for start, stop in pairwise(cuts):
            source = stored[origin[start]][0]
            for part in Span(start, stop).batches(step):
                rows = at[part.start : part.stop]
                if isinstance(source, StoredBlock):
                    yield _take(source, rows, source.features[rows])
                elif source in self._pieces:
                    # Checked when it was found, and again in the finished shard.
                    yield _take(opened(source), rows, opened(source).view(rows))
                else:
                    yield _take(opened(source), rows, opened(source).read_rows(rows))

    def _positions(self, buffer: Sequence[tuple[int, StoredBlock]]) -> np.ndarray:
        rows = [np.arange(first, first + len(block)) for first, block in buffer]
        return np.concatenate(rows) - self.span.start


def _take(source: ShardFile | StoredBlock, rows: np.ndarray, features: np.ndarray) -> StoredBlock:
    errors = tuple(source.errors[row] for row in rows)
    other = None if source.source_crc32 is None else source.source_crc32[rows]
    return StoredBlock(features, source.status[rows], errors, other, crc32=source.crc32[rows])


def shard_folder(work: Path, shard: int) -> Path:
    """Return the folder of a shard's files in a work folder."""
    return work / f"{shard:05d}"


def piece_files(folder: Path) -> list[Path]:
    """Return the pieces in the folder of a shard."""
    return sorted(folder.glob("piece-*.h5"))
