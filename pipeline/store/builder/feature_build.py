"""Building a feature set: which rows are pending, and publishing the set once none is."""

import heapq
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from pipeline.store.builder.existing import fit_to_existing
from pipeline.store.builder.locking import (
    WORK_FOLDER,
    only_writer,
    remove_if_empty,
    remove_leftovers,
    require_output_folder,
    require_space,
    work_folders,
)
from pipeline.store.builder.reuse import contents, older_rows, unfinished_files
from pipeline.store.builder.unfinished_shard import (
    PENDING,
    REUSABLE,
    STORED,
    FinishedShard,
    Inspect,
    States,
    UnfinishedShard,
    finished_shard,
    open_rows,
    shard_folder,
)
from pipeline.store.current.replace import finish_swap, forget_superseded, make_way, swap
from pipeline.store.files import require_local
from pipeline.store.packed import PackedTexts, TextIndex
from pipeline.store.progress import WRITE, Progress, Stopwatch, no_progress
from pipeline.store.shards.format import (
    OK,
    SOURCE_CRC32,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    RowBlock,
    ShardError,
    require_unique_ids,
)
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex, index_of
from pipeline.store.shards.plan import ShardPlan, Span, default_rows_per_shard
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.row_keys import RowNumbers

WRITERS = 3
"""Shards that are assembled at once, while the rows of the next are computed."""

RUN_FILES = "run-*"
"""Files in work folders, each for a run with workers, which stop once it is removed."""

Compute = Callable[[Sequence[Span], Stopwatch], Iterator[tuple[int, RowBlock]]]
"""Yields the rows of spans in order, in blocks within a span, each with its first row number."""


class ShardBuild:
    """Context manager that builds a feature set.

    It is not bound to a thread: one may enter it and another append, as long as only one at a time
    calls `append`, `redo`, `publish` or leaves the context.
    """

    work: Path
    """Work folder, `.work/<name>-<fingerprint>` next to the output; set on entry."""
    compress: bool
    """Whether the shards are compressed; known on entry."""
    state: States
    """(rows,) uint8: `PENDING`, `REUSABLE` or `STORED`; known on entry."""

    def __init__(
        self,
        out: str | Path,
        header: FeatureHeader,
        ids: Sequence[str],
        rows_per_shard: int | None = None,  # None: as in the output, or shards of 128-256 MiB
        compress: bool = False,  # existing shards take precedence
        inputs: object = None,  # JSON; unfinished work on other inputs is not resumed
        add: bool | None = None,  # append missing ids; None: errors do not offer to add
        update: bool = False,  # replace other rows, move other features aside: see `reuse`
        inspect: Inspect = ShardFile.inspect,  # verifies what was written
    ) -> None:
        """Plan the shards; the file system is untouched until the context is entered."""
        require_local(out)
        out = Path(out)
        size = (
            default_rows_per_shard(header.row_bytes) if rows_per_shard is None else rows_per_shard
        )
        self.plan: ShardPlan = ShardPlan.equal(len(ids), size)
        # Both are final once the context is entered: an extended set has its older rows first.
        self.ids: PackedTexts = ids if isinstance(ids, PackedTexts) else PackedTexts(ids)
        self._requested = self.ids
        require_unique_ids(self.ids, str(out))
        # Resolve once: `..`, `.` and links would change the location of the work folder later.
        self._out = out.resolve()
        self._parent = self._out.parent / WORK_FOLDER
        # On entry of the version of existing or unfinished shards: a set has one version.
        self.header: FeatureHeader = header
        self._inputs = inputs
        self._options = (rows_per_shard, compress, add, update)
        self._update, self._inspect = update, inspect
        self.damaged: list[str] = []  # corrupt files that will be recomputed
        self.moved: list[str] = []  # log lines on folders that an update has moved
        self.published: FeatureIndex | None = None  # valid index of the output on entry
        self._replaces = False
        # Row number (-1: not provided) of each row of the files that an update reuses.
        self._older: dict[Path, RowNumbers] = {}
        self._finished: dict[int, FinishedShard] = {}
        self._unfinished: dict[int, UnfinishedShard] = {}
        self._writing: list[tuple[UnfinishedShard, Future[FinishedShard]]] = []
        self._watch = Stopwatch()
        self._undo = ExitStack()

    def __enter__(self) -> "ShardBuild":
        """Lock the output, then inspect its contents."""
        require_output_folder(self._out, self._parent)
        with ExitStack() as undo:
            # Before any look at the output, whose contents another writer would change.
            undo.enter_context(only_writer(self._parent / f"{self._out.name}.lock", self._out))
            # First: after a swap that was killed halfway, the old set is in the work folder.
            finish_swap(self._out, _is_of_set)
            if self._update:
                key, these = self.header.recipe_hash, partial(contents, self.header)
                self.moved = make_way(self._out, key, these)
            existing = fit_to_existing(self._out, self.header, self.ids, self.plan, *self._options)
            self.plan, self.ids, self.compress = existing.plan, existing.ids, existing.compress
            self.published, self._replaces = existing.index, existing.replaces
            self.damaged = existing.damaged
            # Other rows, inputs or layouts get another work folder: their rows are never mixed
            # with these.
            works = {
                self._parent / f"{self._out.name}-{existing.fingerprint(h, self._inputs)}": h
                for h in existing.headers
            }
            self.work = next((work for work in works if work.is_dir()), next(iter(works)))
            self.header = works[self.work]
            self.work.mkdir(exist_ok=True)
            undo.callback(remove_if_empty, self.work)
            # Half-written files of a killed run, and its run file: its workers stop once it is
            # missing.
            remove_leftovers(self.work, "*.part", "*/*.part", RUN_FILES)
            remove_leftovers(self._out, f"{INDEX_FILE}.*.part")
            self.state = np.full(len(self.ids), PENDING, np.uint8)
            if self._update and self.published is None:
                self._find_older(existing.broken, existing.vouched)
            for shard in range(self.plan.shards):
                self._find_shard(shard, existing.broken)
            self._require_space()
            self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="write")
            undo.enter_context(self._writers)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Flush finished rows to journals, so that an interrupted run loses none."""
        with self._undo:
            for shard in self._unfinished.values():
                shard.flush()

    @property
    def rows_done(self) -> int:
        """Number of rows that are not pending."""
        return int(np.count_nonzero(self.state != PENDING))

    @property
    def replaced_rows(self) -> tuple[int, int] | None:
        """Numbers of old rows that an update keeps and drops; None without a replacement."""
        if not self._replaces:
            return None
        rows = [rows for path, rows in self._older.items() if path.parent == self._out]
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

    def existing(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield existing rows (n,) int64 with status and source_crc32, one shard at a time."""
        # Rows of finished shards, then those that an update copies from older ones.
        for span, file in self.finished_files():
            yield np.arange(span.start, span.stop), file.status, file.source_crc32
        for path, numbers in self._older.items():
            # -1 reads the last entry, which the first condition masks.
            rows = np.flatnonzero((numbers >= 0) & (self.state[numbers] == REUSABLE))
            older = open_rows(path, self.header)
            yield numbers[rows], older.status[rows], older.sources[SOURCE_CRC32][rows]

    def finished_files(self) -> Iterator[tuple[Span, ShardFile]]:
        """Yield each finished shard's span, and the shard opened for reading."""
        for shard, finished in sorted(self._finished.items()):
            yield self.plan.span(shard), ShardFile(finished.path)

    def redo(self, rows: Iterable[int]) -> None:
        """Mark existing rows as pending, to be recomputed; numbers in any order."""
        numbers = np.unique(np.fromiter(rows, np.int64))
        if numbers.size and not 0 <= numbers[0] <= numbers[-1] < self.plan.rows:
            raise ShardError(
                f"rows {numbers[0]} to {numbers[-1]} were requested again; {self._out} has rows 0 "
                f"to {self.plan.rows - 1}"
            )
        for shard in sorted({self.plan.shard_of(int(row)) for row in numbers}):
            span = self.plan.span(shard)
            if (before := self._finished.pop(shard, None)) is not None:
                # The other rows are copied once the last new one exists.
                self.state[span.start : span.stop] = REUSABLE
                self._unfinished[shard] = self._unfinished_shard(shard, (), before)
            self._unfinished[shard].flush()
            self.state[numbers[(numbers >= span.start) & (numbers < span.stop)]] = PENDING
            # Rows that an interrupted run on the same inputs recomputed are in journals.
            self._find_rows(self._unfinished[shard])
        self._require_space()

    def pending(self) -> list[Span]:
        """Return the spans of pending rows, in order, none across two shards."""
        return [
            Span(shard.first_row + span.start, shard.first_row + span.stop)
            for shard in self.unfinished()
            for span in shard.pending
        ]

    def unfinished(self) -> list[UnfinishedShard]:
        """Return the unfinished shards in order."""
        return [shard for _, shard in sorted(self._unfinished.items())]

    def append(self, first_row: int, block: RowBlock) -> None:
        """Append computed rows: pending ones, within one shard, which is written after its last."""
        shard = self._unfinished.get(self.plan.shard_of(first_row))
        if shard is None:
            raise ShardError(f"unexpected row {first_row}: it is not a pending row of {self._out}")
        shard.append(first_row - shard.first_row, block)
        self._write_if_complete(shard)

    def accept(self, number: int, finished: FinishedShard) -> None:
        """Accept a verified shard of another process."""
        if (shard := self._unfinished.pop(number, None)) is None:
            raise ShardError(f"unexpected shard {number} of {self._out}: it was not requested")
        self._accept(shard, finished)

    def find_rows(self) -> None:
        """Count the rows that other processes have journaled as stored."""
        for shard in self._unfinished.values():
            self._find_rows(shard)

    def fill(
        self,
        compute: Compute,
        progress: Progress = no_progress,
        watch: Stopwatch | None = None,
    ) -> FeatureIndex:
        """Compute the pending rows in this process, and publish the set."""
        self._watch = watch = watch or self._watch
        done, failed = self.rows_done, 0
        progress(done, len(self.ids), failed)
        pending = self.pending()
        for first_row, block in compute(pending, watch) if pending else ():
            with watch.timing(WRITE):
                self.append(first_row, block)
            done += len(block)
            failed += int((block.status != OK).sum())
            progress(done, len(self.ids), failed)
        return self.publish()

    def publish(self) -> FeatureIndex:
        """Move all shards to the output, write `index.json` and remove the work folder."""
        for unfinished in self.unfinished():  # with reused or journaled rows only
            self._write_if_complete(unfinished)
        self._accept_written(0)
        if self._unfinished:
            raise ShardError(
                f"{self._out}: shards {[*self._unfinished][:5]} (from 0) are not finished"
            )
        # After a kill, the next run finds shards in the work folder, or in the output without an
        # index that lists them, and verifies them. A set that replaces another one is complete
        # before the swap, with its index. Work is deleted only once the index is in the output.
        index = self._move_to(self._successor if self._replaces else self._out)
        if self._replaces:
            swap(self._successor, self._out, _is_of_set)
        forget_superseded(self._out)
        for folder in {path.parent.parent for path in self._older} & {*self.other_work()}:
            shutil.rmtree(folder, ignore_errors=True)
        if index != self.published:
            # A worker believed lost may still write into it until it notices the end of the run.
            shutil.rmtree(self.work, ignore_errors=True)
        return index

    @property
    def _successor(self) -> Path:
        """Folder of a set that will replace another one."""
        return self.work / "made"

    def _move_to(self, folder: Path) -> FeatureIndex:
        """Move the shards that a folder lacks there, then write its index."""
        shards = [self._finished[shard] for shard in range(self.plan.shards)]
        before = None if self._replaces else self.published
        # Only `trained_on` may differ.
        index = index_of(
            replace(before.header, trained_on=self.header.trained_on) if before else self.header,
            self.plan.rows_per_shard,
            [(shard.entry, shard.created_by) for shard in shards],
        )
        moving = [shard for shard in shards if shard.path.parent != folder]
        if moving or index != before:
            folder.mkdir(parents=True, exist_ok=True)
            # Renames: each shard is in one of the two folders at any time, never partially. After a
            # kill in between, the old index, if any, does not list the moved shards; the next run
            # verifies and reuses them.
            for shard in moving:
                shard.path.replace(folder / shard.entry.file)
            # Last, since it marks the set as finished. Its writer flushes the folder, and with it
            # the renames above.
            index.write(folder)
        return index

    def _find_older(self, broken: dict[Path, str], vouched: Sequence[Path]) -> None:
        """Find the rows that an update can copy, from the old set and from interrupted runs."""
        shards = sorted(self._out.glob("shard-*.h5")) if self._replaces else []
        others = (path for folder in self.other_work() for path in unfinished_files(folder))
        self._older, damaged = older_rows(
            chain(shards, others), self.header, self.ids, broken, vouched
        )
        self.damaged += damaged
        for rows in self._older.values():
            self.state[rows[rows >= 0]] = REUSABLE

    def _find_shard(self, shard: int, broken: dict[Path, str]) -> None:
        """Find a finished shard, or its rows in journals."""
        span, name = self.plan.span(shard), self.plan.file_name(shard)
        folder = shard_folder(self.work, shard)
        # The work folder first: a shard there is newer, of a run that was killed before moving it.
        for path in (folder / name, (self._successor if self._replaces else self._out) / name):
            finished = self._verified(path, span, broken)
            if finished is None:
                continue
            self._finished[shard] = finished
            self.state[span.start : span.stop] = STORED
            # Obsolete: the journals of a finished shard, or a corrupt newer version of it.
            at_work = path.parent == folder
            for obsolete in set(folder.glob("*")) - {path} if at_work else [folder / name]:
                obsolete.unlink(missing_ok=True)
            return
        within = [
            path
            for path, rows in self._older.items()
            if ((rows >= span.start) & (rows < span.stop)).any()
        ]
        self._unfinished[shard] = self._unfinished_shard(shard, within, None)
        self._find_rows(self._unfinished[shard])

    def _verified(self, path: Path, span: Span, broken: dict[Path, str]) -> FinishedShard | None:
        """Return a shard if it exists and is valid; one that HDF5 crashes on is not opened."""
        if path in broken:
            self.damaged.append(f"{path} is {broken[path]}")
            return None
        try:
            if path.is_file():
                ids = self.ids[span.start : span.stop]
                return finished_shard(path, self.header, ids, span.start)
        except DamagedShard as error:
            self.damaged.append(str(error))
        # Refused, not recomputed: it may be another result, which took days.
        except OtherShard as error:
            raise OtherShard(
                f"{error}; choose another output folder, or delete {path} if it is obsolete"
            ) from error
        return None

    def _unfinished_shard(
        self, shard: int, older: Sequence[Path], replaces: FinishedShard | None
    ) -> UnfinishedShard:
        span = self.plan.span(shard)
        ids, state = self.ids.part(span.start, span.stop), self.state[span.start : span.stop]
        return UnfinishedShard(
            self.work, self.header, self.plan, shard, ids, state, self.compress, older, replaces
        )

    def _find_rows(self, shard: UnfinishedShard) -> None:
        self.damaged += [text for text in shard.find_rows() if text not in self.damaged]

    def _require_space(self) -> None:
        states = [shard.state for shard in self._unfinished.values()]
        rows = sum(int((state != STORED).sum()) for state in states)
        # A shard coexists with its journals while it is assembled.
        pending = (int((state == PENDING).sum()) for state in states)
        assembled = sum(heapq.nlargest(WRITERS, pending))
        require_space(self.work, rows + assembled, self.header.row_bytes)

    def _write_if_complete(self, shard: UnfinishedShard) -> None:
        """Assemble a shard without pending rows on a thread."""
        if shard.complete:
            del self._unfinished[shard.number]
            self._writing.append((shard, self._writers.submit(self._assembled, shard)))
            # Each shard that waits to be written keeps its last rows in memory.
            self._accept_written(WRITERS)

    def _assembled(self, shard: UnfinishedShard) -> FinishedShard:
        with self._watch.timing(WRITE):
            try:
                return shard.finish(self._inspect)
            except BaseException:
                shard.flush()
                raise

    def _accept_written(self, most: int) -> None:
        """Accept shards until at most that many are being written."""
        while len(self._writing) > most:
            shard, future = self._writing[0]
            self._accept(shard, future.result())
            del self._writing[0]

    def _accept(self, shard: UnfinishedShard, finished: FinishedShard) -> None:
        self._finished[shard.number] = finished
        shard.state[:] = STORED
        # Last: until the shard is verified, its journals alone have its rows.
        shard.remove_files()


def _is_of_set(path: Path) -> bool:
    """Return whether a file of an output belongs to its feature set."""
    return path.name == INDEX_FILE or path.match("shard-*.h5") or path.suffix == ".part"
