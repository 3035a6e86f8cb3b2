"""Building a feature set: resume what is sound, keep finished rows, publish whole shards.

Rows gather in a work folder beside the output. Every few seconds they are put down as a
*piece*, a small shard of its own; when the last row of a shard has come, its pieces become
that shard. Finished shards are moved to the output and `index.json` is written last. What a
killed run leaves is checked, row by row, before it is trusted, and the bytes of the result do
not depend on where it was killed.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from pipeline.canonical import require_folder, sha256_of_json
from pipeline.shards.file import ShardFile, difference
from pipeline.shards.format import (
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardEntry,
    ShardError,
)
from pipeline.shards.index import INDEX_FILE, FeatureIndex, read_index
from pipeline.shards.plan import ShardPlan, Span, default_rows_per_shard
from pipeline.shards.write import write_shard

WORK_FOLDER = ".work"
PIECE_SECONDS = 20.0
PIECE_BYTES = 1 << 26


class ShardBuild:
    """One feature set in the making; use it as a context manager.

    Attributes
    ----------
    work : the folder of unfinished work, `.work/<name>-<fingerprint>` beside the output.
    damaged : what was found damaged and will be made again, one text each.
    """

    def __init__(
        self,
        out: Path,
        header: FeatureHeader,
        ids: Sequence[str],
        rows_per_shard: int | None = None,
        compress: bool = False,
        inputs: object = None,
    ) -> None:
        """Plan the shards; nothing is touched before the context is entered.

        Parameters
        ----------
        out : folder of the finished shards.
        header : attributes of the feature set.
        ids : all row ids in order.
        rows_per_shard : default: as many as make a shard of about 0.5-1 GiB.
        compress : see `write_shard`.
        inputs : JSON values that change when what the rows are made from does; unfinished work
            on other inputs is not continued.

        Raises
        ------
        PlanError
            No rows.
        """
        if rows_per_shard is None:
            rows_per_shard = default_rows_per_shard(header.row_bytes)
        self.plan = ShardPlan(len(ids), rows_per_shard)
        self._out, self._header, self._ids, self._compress = out, header, list(ids), compress
        fingerprint = sha256_of_json(
            [header.attributes(), header.dtype, list(ids), rows_per_shard, compress, inputs]
        )
        self._parent = out.absolute().parent / WORK_FOLDER
        self.work = self._parent / f"{out.name}-{fingerprint[:16]}"
        self.damaged: list[str] = []
        self._done: dict[int, tuple[Path, ShardEntry]] = {}
        self._next_row: dict[int, int] = {}
        self._pieces: dict[int, list[Path]] = {}
        self._buffer: list[RowBlock] = []
        self._buffer_start = 0
        self._last_piece = time.monotonic()
        self._published: FeatureIndex | None = None
        self._lock: int | None = None

    def __enter__(self) -> "ShardBuild":
        """Lock the output, then find out what is already there.

        Raises
        ------
        OtherShard
            The output holds another feature set, or the same with other rows.
        ShardError
            Another process is writing the same output.
        """
        require_folder(self._out)
        self.work.mkdir(parents=True, exist_ok=True)
        self._acquire()
        try:
            self._published = self._published_index()
            for leftover in (*self.work.glob("*.part"), *self._out.glob(f"{INDEX_FILE}.*.part")):
                leftover.unlink()
            for shard in range(self.plan.shards):
                self._resume(shard)
            self._require_space()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put down finished rows as a piece, so that an interrupted run loses none."""
        try:
            if self._buffer:
                self._put_down_piece()
        finally:
            # Only empty folders go: kept work keeps its folder.
            with suppress(OSError):
                self.work.rmdir()
            self._release()

    @property
    def rows_done(self) -> int:
        """Rows that need no more work."""
        return self.plan.rows - sum(len(span) for span in self.pending())

    def other_work(self) -> list[Path]:
        """Return work folders of unfinished runs on this output with other settings."""
        own = re.compile(re.escape(self._out.name) + "-[0-9a-f]{16}")
        return sorted(p for p in self._parent.iterdir() if own.fullmatch(p.name) and p != self.work)

    def pending(self) -> list[Span]:
        """Return the spans of rows still to be computed, in order, none across two shards."""
        spans = []
        for shard in range(self.plan.shards):
            span = self.plan.span(shard)
            start = self._next_row.get(shard, span.start)
            if shard not in self._done and start < span.stop:
                spans.append(Span(start, span.stop))
        return spans

    def append(self, first_row: int, block: RowBlock) -> None:
        """Add finished rows; they must be the next pending ones and lie in one shard.

        Raises
        ------
        ShardError
            The rows are out of turn, or hold values that cannot be stored.
        """
        shard = self.plan.shard_of(first_row)
        span = self.plan.span(shard)
        expected = self._next_row.get(shard, span.start)
        if first_row != expected or first_row + len(block) > span.stop:
            raise ShardError(
                f"rows {first_row} to {first_row + len(block) - 1} came out of turn: shard "
                f"{shard} waits for row {expected} and ends before row {span.stop}"
            )
        if not self._buffer:
            self._buffer_start = first_row
        self._buffer.append(block)
        self._next_row[shard] = first_row + len(block)
        held = sum(len(b) for b in self._buffer) * self._header.row_bytes
        if self._next_row[shard] == span.stop:
            self._finish(shard)
        elif held >= PIECE_BYTES or time.monotonic() - self._last_piece >= PIECE_SECONDS:
            self._put_down_piece()

    def publish(self) -> FeatureIndex:
        """Move all shards to the output, write `index.json` and remove the work folder.

        Raises
        ------
        ShardError
            Rows are still pending.
        """
        if pending := self.pending():
            raise ShardError(
                f"{self._out}: rows {pending[0].start} to {pending[0].stop - 1} are not done yet"
            )
        self._out.mkdir(parents=True, exist_ok=True)
        index = FeatureIndex(
            self._header,
            self.plan.rows_per_shard,
            tuple(self._done[shard][1] for shard in range(self.plan.shards)),
        )
        in_place = all(path.parent == self._out for path, _ in self._done.values())
        if in_place and self._published is not None and self._published.shards == index.shards:
            return self._published
        for path, entry in self._done.values():
            path.replace(self._out / entry.file)
        index.write(self._out)
        shutil.rmtree(self.work)
        return index

    def _require_space(self) -> None:
        rows = sum(len(span) for span in self.pending())
        # A shard lies beside its pieces while it is put together.
        most = min(rows, self.plan.rows_per_shard)
        needed, free = (rows + most) * self._header.row_bytes, shutil.disk_usage(self.work).free
        if needed > free:
            raise ShardError(
                f"{rows} rows of {self._header.row_bytes} bytes need {needed / 1e6:.1f} MB beside "
                f"{self._out}, and {free / 1e6:.1f} MB are free; make room or give another --out"
            )

    def _published_index(self) -> FeatureIndex | None:
        """Return the output's index, if it has a sound one; refuse an output of another set."""
        remedy = f"; give another --out, or remove {self._out} if those features may go"
        names = {self.plan.file_name(shard) for shard in range(self.plan.shards)}
        strangers = sorted(p.name for p in self._out.glob("shard-*.h5") if p.name not in names)
        if strangers:
            raise OtherShard(
                f"{self._out} holds {strangers[0]}, which is none of the {len(names)} shards of "
                f"{self.plan.rows_per_shard} rows asked for{remedy}"
            )
        if not (self._out / INDEX_FILE).is_file():
            return None
        try:
            found = read_index(self._out)
        except ShardError as error:
            self.damaged.append(str(error))
            return None
        if found.header.recipe_hash != self._header.recipe_hash:
            theirs, ours = found.header.attributes(), self._header.attributes()
            name = next(n for n in ("recipe", "weights_sha256") if theirs[n] != ours[n])
            raise OtherShard(f"{difference(self._out, name, theirs[name], ours[name])}{remedy}")
        if (found.rows, found.rows_per_shard) != (self.plan.rows, self.plan.rows_per_shard):
            raise OtherShard(
                f"{self._out} holds {found.rows} rows in shards of {found.rows_per_shard}, not "
                f"{self.plan.rows} in shards of {self.plan.rows_per_shard}{remedy}"
            )
        return found

    def _resume(self, shard: int) -> None:
        span = self.plan.span(shard)
        name = self.plan.file_name(shard)
        for path in (self.work / name, self._out / name):
            if path.is_file():
                try:
                    file = ShardFile(path)
                    file.require(self._header, self._ids[span.start : span.stop])
                    self._done[shard] = (path, file.inspect(span.start))
                    return
                except DamagedShard as error:
                    self.damaged.append(str(error))
                except OtherShard as error:
                    raise OtherShard(
                        f"{error}; give another --out, or remove {path.parent} if it may go"
                    ) from error
        row = span.start
        pieces = []
        for path, start, stop in self._piece_files(shard):
            try:
                if start != row:
                    raise DamagedShard(f"{path}: rows {row} to {start - 1} before it are lost")
                file = ShardFile(path)
                file.require(self._header, self._ids[start:stop])
                file.inspect(start)
                pieces.append(path)
                row = stop
            except (DamagedShard, OtherShard) as error:
                self.damaged.append(str(error))
                path.unlink()
        self._pieces[shard] = pieces
        self._next_row[shard] = row
        if row == span.stop:
            self._finish(shard)

    def _piece_files(self, shard: int) -> list[tuple[Path, int, int]]:
        found = []
        for path in self.work.glob(f"piece-{shard:05d}-*.h5"):
            start, stop = (int(part) for part in path.stem.split("-")[2:])
            found.append((path, start, stop))
        return sorted(found, key=lambda item: item[1])

    def _put_down_piece(self) -> None:
        rows = sum(len(block) for block in self._buffer)
        # From the buffer alone: an interrupt may come between a row's arrival and its count.
        start, stop = self._buffer_start, self._buffer_start + rows
        shard = self.plan.shard_of(start)
        path = self.work / f"piece-{shard:05d}-{start:09d}-{stop:09d}.h5"
        write_shard(path, self._header, self._ids[start:stop], self._buffer, 0, 1)
        self._pieces.setdefault(shard, []).append(path)
        self._buffer = []
        self._last_piece = time.monotonic()

    def _finish(self, shard: int) -> None:
        span = self.plan.span(shard)
        path = self.work / self.plan.file_name(shard)
        pieces = self._pieces.get(shard, [])

        def blocks() -> Iterator[RowBlock]:
            for piece in pieces:
                yield from ShardFile(piece).blocks()
            yield from self._buffer

        ids = self._ids[span.start : span.stop]
        write_shard(path, self._header, ids, blocks(), shard, self.plan.shards, self._compress)
        self._buffer = []
        self._done[shard] = (path, ShardFile(path).inspect(span.start))
        for piece in pieces:
            piece.unlink()
        self._last_piece = time.monotonic()

    def _acquire(self) -> None:
        lock = os.open(self._parent / f"{self._out.name}.lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ShardError(
                f"another process is writing {self._out}; wait until it has ended, or give "
                "another --out"
            ) from error
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
