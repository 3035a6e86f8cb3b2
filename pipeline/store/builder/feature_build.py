"""Building a feature set: resume from valid shards, keep finished rows, publish atomically.

Rows are buffered and written every few seconds to a *piece*, a small shard in a work folder next to
the output. Once all rows of a shard exist, its pieces are combined into the shard. Finished shards
are moved to the output, and `index.json` is written last. Leftovers of a killed run are verified
row by row before they are reused, and the resulting bytes do not depend on where it was killed.

An update builds a set of other rows in the work folder, copies rows from the old set where it has
them, and swaps the finished folder with the old one.

Shards are computed one at a time in this process, or by workers; see `pipeline.store.builder.job`.
"""

import heapq
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline.store.builder.existing import fit_to_existing
from pipeline.store.builder.job import ShardResult, SubmittedJob, submit_shards
from pipeline.store.builder.job_ref import JOB_FILES
from pipeline.store.builder.locking import (
    WORK_FOLDER,
    only_writer,
    remove_if_empty,
    remove_leftovers,
    require_output_folder,
    require_space,
    work_folders,
)
from pipeline.store.builder.partial_shard import PartialShard, piece_files, shard_folder
from pipeline.store.builder.publish import FinishedShard, find_shard, finished_shard, publish
from pipeline.store.builder.reuse import OlderRows, make_way, older_rows, unfinished_shards
from pipeline.store.current.replace import finish_swap, forget_superseded, swap
from pipeline.store.packed import PackedTexts, TextIndex
from pipeline.store.shards.format import FeatureHeader, RowBlock, ShardError, require_unique_ids
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex
from pipeline.store.shards.plan import ShardPlan, Span, default_rows_per_shard
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.row_keys import RowNumbers

T = TypeVar("T")

WRITERS = 3
"""Shards that are assembled at once in this process."""


class ShardBuild:
    """Context manager that builds a feature set.

    It is not bound to a thread: one may enter it and another append, as long as only one at a time
    calls `append`, `redo`, `publish` or leaves the context.
    """

    work: Path
    """Work folder, `.work/<name>-<fingerprint>` next to the output; set on entry."""
    compress: bool
    """Whether the shards are compressed; known on entry."""

    def __init__(
        self,
        out: str | Path,
        header: FeatureHeader,
        ids: Sequence[str],
        rows_per_shard: int | None = None,  # None: as in the output, or shards of about 0.5-1 GiB
        compress: bool = False,  # existing shards take precedence
        inputs: object = None,  # JSON; unfinished work on other inputs is not resumed
        add: bool | None = None,  # append missing ids; None: errors do not offer to add
        update: bool = False,  # replace other rows, move other features aside: see `reuse`
    ) -> None:
        """Plan the shards; the file system is untouched until the context is entered."""
        out = Path(out)
        size = (
            default_rows_per_shard(header.row_bytes) if rows_per_shard is None else rows_per_shard
        )
        self.plan: ShardPlan = ShardPlan(len(ids), size)
        # Both are final once the context is entered: an extended set has its older rows first.
        self.ids: Sequence[str] = ids if isinstance(ids, PackedTexts) else PackedTexts(ids)
        self._requested = self.ids
        require_unique_ids(self.ids, str(out))
        # Resolve once: `..`, `.` and links would change the location of the work folder later.
        self._out = out.resolve()
        self._parent = self._out.parent / WORK_FOLDER
        self.header: FeatureHeader = header
        self._inputs = inputs
        self._options = (rows_per_shard, compress, add, update)
        self._update = update
        self.damaged: list[str] = []  # corrupt files that will be recomputed
        self.moved: list[str] = []  # log lines on folders that an update has moved
        self._broken: dict[Path, str] = {}
        self._done: dict[int, FinishedShard] = {}
        self._partial: dict[int, PartialShard] = {}
        self._published: FeatureIndex | None = None
        self._replaces = False
        self._older: list[OlderRows] = []
        # (rows,) bool: rows that an older shard has and that are not in a shard of this set.
        self._copied = np.zeros(0, bool)
        self._undo = ExitStack()

    def __enter__(self) -> "ShardBuild":
        """Lock the output, then inspect its contents."""
        require_output_folder(self._out, self._parent)
        with ExitStack() as undo:
            self._parent.mkdir(parents=True, exist_ok=True)
            # Before any look at the output, whose contents another writer would change.
            undo.enter_context(only_writer(self._parent / f"{self._out.name}.lock", self._out))
            # First: after a swap that was killed halfway, the old set is in the work folder.
            finish_swap(self._out, _is_of_set)
            if self._update:
                self.moved = make_way(self._out, self.header)
            existing = fit_to_existing(self._out, self.header, self.ids, self.plan, *self._options)
            self.plan, self.ids, self.compress = existing.plan, existing.ids, existing.compress
            self._published, self.damaged = existing.index, existing.damaged
            self._broken, self._replaces = existing.broken, existing.replaces
            fingerprint = existing.fingerprint(self.header, self._inputs)
            # Other rows, inputs or layouts get another work folder: their pieces are never mixed
            # with these.
            self.work = self._parent / f"{self._out.name}-{fingerprint}"
            self.work.mkdir(exist_ok=True)
            undo.callback(remove_if_empty, self.work)
            # Half-written files of a killed run, and its job files: its workers stop once these are
            # gone.
            remove_leftovers(self.work, "*.part", "*/*.part", JOB_FILES)
            remove_leftovers(self._out, f"{INDEX_FILE}.*.part")
            self._find_older(existing.vouched)
            for shard in range(self.plan.shards):
                self._resume(shard)
            self._require_space()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Write finished rows to a piece, so that an interrupted run loses none."""
        with self._undo:
            self._flush()

    @property
    def published(self) -> FeatureIndex | None:
        """Valid index of the output on entry, or None."""
        return self._published

    @property
    def rows_done(self) -> int:
        """Number of finished rows."""
        return self.plan.rows - sum(len(span) for span in self.pending())

    @property
    def replaced_rows(self) -> tuple[int, int] | None:
        """Numbers of old rows that an update keeps and drops; None without a replacement."""
        if not self._replaces:
            return None
        rows = [older.rows for older in self._older if older.path.parent == self._out]
        reused = sum(int((numbers >= 0).sum()) for numbers in rows)
        return reused, sum(map(len, rows)) - reused

    def requested_rows(self) -> RowNumbers | None:
        """Return the requested position of each row, (rows,) int64; None: the order is the same."""
        if self.ids == self._requested:
            return None
        return TextIndex(self._requested).rows_of(self.ids, len(self.ids))

    def other_work(self) -> list[Path]:
        """Return work folders of unfinished runs on this output with other settings."""
        return [path for path in work_folders(self._out) if path != self.work]

    def finished(self) -> Iterator[tuple[Span, np.ndarray, np.ndarray]]:
        """Yield each finished shard's span, status (rows,) uint8, source_crc32 (rows,) uint32."""
        for span, file in self.finished_files():
            yield span, file.status, file.source_crc32

    def existing(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield existing rows (n,) int64 with status and source_crc32, one shard at a time."""
        # Rows of finished shards, then those that an update copies from older shards.
        for span, status, source_crc32 in self.finished():
            yield np.arange(span.start, span.stop), status, source_crc32
        for older in self._older:
            # -1 reads the last entry of `_copied`, which the first condition masks.
            rows = np.flatnonzero((older.rows >= 0) & self._copied[older.rows])
            yield older.rows[rows], older.status[rows], older.source_crc32[rows]

    def finished_files(self) -> Iterator[tuple[Span, ShardFile]]:
        """Yield each finished shard's span, and the shard opened for reading."""
        for shard, finished in sorted(self._done.items()):
            yield self.plan.span(shard), ShardFile(finished.path)

    def redo(self, rows: Iterable[int]) -> None:
        """Mark rows of finished shards as pending, to be recomputed; numbers in any order."""
        numbers = np.unique(np.fromiter(rows, np.int64))
        if numbers.size and not 0 <= numbers[0] <= numbers[-1] < self.plan.rows:
            raise ShardError(
                f"rows {numbers[0]} to {numbers[-1]} were requested again; {self._out} has rows 0 "
                f"to {self.plan.rows - 1}"
            )
        # Rows count as finished only once they are in a piece: see `PartialShard.mark_missing`.
        self._flush()
        # The other rows of a shard are copied, and verified, once its last new one exists. Until
        # then, rows that an interrupted run on the same inputs recomputed are in pieces.
        for shard in sorted({self.plan.shard_of(int(row)) for row in numbers}):
            span = self.plan.span(shard)
            self._mark_missing(shard, numbers[(numbers >= span.start) & (numbers < span.stop)])
        # `append` expects the rows of the first pending shard.
        self._partial = dict(sorted(self._partial.items()))
        self._require_space()

    def pending(self) -> list[Span]:
        """Return the spans of pending rows, in order, none across two shards."""
        return [span for partial in self._partial.values() for span in partial.missing]

    def append(self, first_row: int, block: RowBlock) -> None:
        """Append finished rows: the next pending ones, within one pending span."""
        waiting = next((partial for partial in self._partial.values() if partial.missing), None)
        if waiting is None:
            raise ShardError(f"unexpected row {first_row}: no row of {self._out} is pending")
        waiting.append(first_row, block)
        self._finish_if_complete(self.plan.shard_of(first_row))

    def pending_shards(self) -> dict[int, PartialShard]:
        """Return the pending shards by number."""
        return dict(self._partial)

    @contextmanager
    def submitted(
        self, sources_of: Callable[[Span], Any], settings: dict[str, Any]
    ) -> Iterator[SubmittedJob]:
        """Submit the pending shards to workers, which compute them while the context is open."""
        job = submit_shards(
            self.work,
            self.header,
            self.plan,
            self.compress,
            settings,
            self._partial,
            sources_of,
        )
        try:
            yield job
        finally:
            job.cancel()
            # Count the pieces of workers as done, also if the run ends here.
            for partial in self._partial.values():
                partial.find_pieces()
                partial.mark_missing(np.arange(0))

    def accept(self, result: ShardResult) -> None:
        """Accept a shard written by a task, once this process sees the same file."""
        partial = self._partial.get(result.shard)
        if partial is None:
            raise ShardError(
                f"unexpected shard {result.shard} of {self._out}: it was not requested"
            )
        self._done[result.shard] = result.collect(partial.path, self.header, partial.ids)
        del self._partial[result.shard]
        partial.remove_pieces()

    def publish(self) -> FeatureIndex:
        """Move all shards to the output, write `index.json` and remove the work folder."""
        # Shards without pending rows, which `append` has not finished: all their rows are copied or
        # in pieces.
        for shard in [*self._partial]:
            self._finish_if_complete(shard)
        if self._partial:
            raise ShardError(
                f"{self._out}: shards {[*self._partial][:5]} (from 0) are not finished"
            )
        shards = [self._done[shard] for shard in range(self.plan.shards)]
        size = self.plan.rows_per_shard
        # After a kill, the next run finds shards in the work folder, or in the output without an
        # index that lists them, and verifies them. A set that replaces another one is complete
        # before the swap, with its index. Work is deleted only once the index is in the output.
        if self._replaces:
            index = publish(self._successor, self.header, size, shards, None)
            swap(self._successor, self._out, _is_of_set)
        else:
            index = publish(self._out, self.header, size, shards, self._published)
        forget_superseded(self._out)
        for folder in {older.path.parent.parent for older in self._older} & {*self.other_work()}:
            shutil.rmtree(folder, ignore_errors=True)
        if index != self._published:
            # A worker believed lost may still write into it until it notices the end of the run.
            shutil.rmtree(self.work, ignore_errors=True)
        return index

    @property
    def _successor(self) -> Path:
        """Folder of a set that will replace another one."""
        return self.work / "made"

    def _find_older(self, vouched: Sequence[Path]) -> None:
        """Find the rows that an update can copy, from the old set and from interrupted runs."""
        self._copied = np.zeros(len(self.ids), bool)
        if not self._update or self._published is not None:
            return
        shards = sorted(self._out.glob("shard-*.h5")) if self._replaces else []
        paths = chain(shards, unfinished_shards(self._out, self.work))
        self._older, damaged = older_rows(paths, self.header, self.ids, self._broken, vouched)
        self.damaged += damaged
        for older in self._older:
            self._copied[older.rows[older.rows >= 0]] = True

    def _require_space(self) -> None:
        partial = self._partial.values()
        rows = sum(len(shard.span) - shard.rows_in_pieces for shard in partial)
        # A shard coexists with its pieces while it is assembled.
        missing = (sum(len(span) for span in shard.missing) for shard in partial)
        assembled = sum(heapq.nlargest(WRITERS, missing))
        require_space(self.work, rows + assembled, self.header.row_bytes)

    def _resume(self, shard: int) -> None:
        """Reuse an existing valid shard, or its pieces."""
        span = self.plan.span(shard)
        name, ids = self.plan.file_name(shard), self.ids[span.start : span.stop]
        folder = shard_folder(self.work, shard)
        # The work folder first: a shard there is newer, of a run that was killed before moving it.
        folders = (folder, self._successor if self._replaces else self._out)
        done, damaged = find_shard(folders, name, self.header, ids, span.start, self._broken)
        self.damaged += damaged
        if done is None:
            copied = self._copied[span.start : span.stop]
            self._mark_missing(shard, np.flatnonzero(~copied) + span.start)
            return
        self._done[shard] = done
        self._copied[span.start : span.stop] = False
        # Obsolete: the pieces of a finished shard, or a corrupt newer version of it.
        at_work = done.path.parent == folder
        for useless in piece_files(folder) if at_work else [folder / name]:
            useless.unlink(missing_ok=True)

    def _mark_missing(self, shard: int, rows: np.ndarray) -> None:
        """Mark rows (n,) int64 of a shard as missing, unless pieces have them."""
        if (partial := self._partial.get(shard)) is None:
            span = self.plan.span(shard)
            older = self._older_shards(span)
            if shard in self._done:
                # Its previous version has the rows that are not recomputed.
                older = [self._done.pop(shard).path]
            ids = self.ids[span.start : span.stop]
            partial = PartialShard(self.work, self.header, self.plan, shard, ids, older)
            self._partial[shard] = partial
            for path, text in partial.find_pieces().items():
                self.damaged.append(text)
                path.unlink()
        partial.mark_missing(rows)
        self._copied[rows] = False

    def _older_shards(self, span: Span) -> list[Path]:
        """Return the older shards with rows of a span."""
        within = ((o.path, (o.rows >= span.start) & (o.rows < span.stop)) for o in self._older)
        return [path for path, rows in within if rows.any()]

    def _flush(self) -> None:
        for partial in self._partial.values():
            partial.flush()

    def _finish_if_complete(self, shard: int) -> None:
        partial = self._partial[shard]
        if partial.missing:
            return
        # The pieces are removed last: until the shard is verified, they alone have its rows.
        partial.finish(self.compress)
        self._done[shard] = finished_shard(
            partial.path, self.header, partial.ids, partial.span.start
        )
        partial.remove_pieces()
        del self._partial[shard]


def _is_of_set(path: Path) -> bool:
    """Return whether a file of an output belongs to its feature set."""
    return path.name == INDEX_FILE or path.match("shard-*.h5") or path.suffix == ".part"
