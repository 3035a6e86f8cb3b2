"""The driver of every feature set: resumes, computes missing and stale rows, publishes."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.current.row_stamps import store_stamps, unchanged_rows
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.inspecting_processes import InspectingProcesses
from pipeline.store.jobs.object_shards import make_object_shards
from pipeline.store.jobs.options import Storage
from pipeline.store.jobs.origins import Origin, missing_files, require_folder
from pipeline.store.jobs.planned_shards import PlannedShards, rows_of_shards
from pipeline.store.jobs.worker import compute_on_workers
from pipeline.store.objects.urls import common_folder, url_of
from pipeline.store.progress import QUIET, Monitor, Stopwatch
from pipeline.store.shards.format import MISSING, OK, FeatureHeader, RowBlock
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.plan import Span, runs
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.wording import counted
from pipeline.store.workers.place import Place
from pipeline.store.workers.shipping import shared


def make_features(
    source: FeatureSource,
    out: str | Path,
    *,
    storage: Storage | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Compute the missing and stale rows of a feature set, and publish it.

    A row that cannot be computed is stored as NaN with a status and a reason. An interrupted call
    resumes when it is repeated. In a finished output, only rows whose source has changed are
    recomputed; `Storage.update` also handles rows added to or removed from the dataset. The result
    is deterministic: the same bytes, interrupted or not, for any number of threads and workers.

    Parameters
    ----------
    source : FeatureSource. The rows.
    out : str or Path. Folder of the shards, or its URL in a store, where each shard appears as soon
        as it is finished: see `pipeline.store.jobs.object_shards`.
    storage : Storage or None. Storage format and update rules; None: the defaults.
    place : Place or None. Where rows are computed; None: in this process.
    monitor : Monitor. Receives log lines and progress.
    watch : Stopwatch or None. Accumulates the seconds of each stage.

    Returns
    -------
    FeatureIndex
        Index of the finished set; `failed_rows` counts rows without features.

    Raises
    ------
    FileReadError
        A system error, not a corrupt file; finished rows are kept.
    ShardError
        The output holds another feature set, or other rows without `update`, or is being written by
        another process, or the disk is full.
    ClusterError
        Workers are not available or fail.
    KeyboardInterrupt
        Finished rows are kept; a log line states how many.

    Examples
    --------
    >>> index = pipeline.make_features(source, "features/mine")  # doctest: +SKIP
    """
    out, storage, place = Path(out), storage or Storage(), place or Place()
    started, watch = time.monotonic(), watch or Stopwatch()
    if (url := url_of(out)) is not None:
        planned = PlannedShards(source, rows_of_shards(url, source.header, storage), place)
        return make_object_shards(planned, url, storage, place, monitor, watch)
    origin = source.origin
    with open_build(source, origin, out, storage) as build:
        job = _Job(source, origin, build, monitor)
        try:
            stamps = job.mark_stale(out, storage)
            computed = len(build.ids) - build.rows_done
            index = job.publish(place, watch)
        except KeyboardInterrupt:
            monitor.log(
                f"interrupted: {build.rows_done} of {len(build.ids)} rows are kept in "
                f"{build.work}; the same command resumes from there"
            )
            raise
        if stamps is not None:
            store_stamps(out, index, stamps)
    seconds = time.monotonic() - started
    monitor.log(rate_line(computed, source.unit, seconds, index.failed_rows))
    place.write_summary(out, index.metadata, computed, seconds, watch)
    return index


def size_line(header: FeatureHeader, rows: int, shards: int, done: int) -> str:
    """Return the log line on shape, size and finished rows of a set."""
    return (
        f"{counted(rows, 'row')} of {header.row_shape} {header.dtype}: "
        f"{rows * header.row_bytes / 1e6:.1f} MB in {counted(shards, 'shard')}; "
        f"{counted(done, 'row is', 'rows are')} done"
    )


def rate_line(computed: int, unit: str, seconds: float, failed: int) -> str:
    """Return the log line on computed rows and their rate."""
    rate = computed / max(seconds, 1e-9)
    return f"{computed} computed in {seconds:.1f} s ({rate:.1f} {unit}s/s), {failed} failed"


def open_build(source: FeatureSource, origin: Origin, out: Path, storage: Storage) -> ShardBuild:
    """Return the build of a feature set, not yet entered; the file system is untouched."""
    return ShardBuild(
        out,
        source.header,
        source.ids,
        storage.rows_per_shard,
        storage.compress,
        origin.digest(),
        storage.add,
        storage.update,
        InspectingProcesses() if source.gpu else ShardFile.inspect,
    )


class _Job:
    """A feature set being computed: its source and an entered build."""

    def __init__(
        self, source: FeatureSource, origin: Origin, build: ShardBuild, monitor: Monitor
    ) -> None:
        self.source, self.origin, self.build, self.monitor = source, origin, build, monitor
        # Row in the source of each row of the set; None: the same. An extended set has its older
        # rows first.
        self.order: RowNumbers | None = build.requested_rows()

    @cached_property
    def folder(self) -> Path:
        """The deepest folder that contains all files."""
        return common_folder(self.origin.files or ())

    def mark_stale(self, out: Path, storage: Storage) -> npt.NDArray[np.int64] | None:
        """Mark changed rows as pending, and failed ones if requested; return the files' stamps."""
        build, log = self.build, self.monitor.log
        for line in build.moved:
            log(line)
        for text in build.damaged:
            log(f"will be recomputed: {text}")
        for folder in build.other_work():
            log(f"unfinished work on {out} with other settings: {folder}; delete it if obsolete")
        stamps = unchanged = None
        trusted = storage.trust_stamps or self.origin.versioned
        if trusted and self.origin.stamps is not None:
            # Before the files are read: one that changes meanwhile counts as changed next time.
            stamps = self.origin.stamps[self._numbers(Span(0, len(build.ids)))]
            unchanged = unchanged_rows(out, build.published, stamps)
        changed, gone, failed = self._compare(unchanged)
        plural = self.origin.plural
        if (replaced := build.replaced_rows) is not None:
            reused, removed = replaced
            current, new = reused - len(changed), len(build.ids) - reused
            log(
                f"{len(build.ids)} rows: {current} kept, {new} new, "
                f"{len(changed)} changed, {removed} removed"
            )
        elif changed:
            log(f"{plural} changed or new: {len(changed)}; their rows are recomputed")
        if gone:
            log(f"{plural} missing now: {len(gone)}; their rows are kept unchanged")
        if failed and not storage.retry_failed:
            number = counted(len(failed), "row")
            log(f"{number} failed before; `retry_failed=True` recomputes them")
        build.redo([*changed, *failed] if storage.retry_failed else changed)
        log(size_line(build.header, len(build.ids), build.plan.shards, build.rows_done))
        return stamps

    def publish(self, place: Place, watch: Stopwatch) -> FeatureIndex:
        """Compute the pending rows, here or on workers, and publish the set."""
        build, monitor = self.build, self.monitor
        if not build.pending():
            return build.publish()
        name = str(build.header.recipe["name"])
        if not place.elsewhere:
            with monitor.progress(name, self.source.unit) as progress:
                return build.fill(self._compute, progress, watch)
        # Before the first task: without the folder, no row of its files is missing.
        missing = np.zeros(len(build.ids), bool)
        if (files := self.origin.files) is not None:
            for span in build.pending():
                some = [files[number] for number in self._numbers(span).tolist()]
                missing[span.start : span.stop] = missing_files(some)
            if missing.any():
                require_folder(self.folder)

        def part_of(span: Span) -> Callable[[], FeatureSource]:
            return self.source.part(self._numbers(span), place.threads, shared)

        with (
            place.executor(monitor, self.source.gpu) as executor,
            monitor.progress(name, self.source.unit) as progress,
        ):
            return compute_on_workers(build, part_of, executor, missing, progress, watch)

    def _compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Yield the rows of spans of the set, as `FeatureSource.compute`."""
        files, row_of = self.origin.files, None
        if self.order is not None:
            row_of = np.empty_like(self.order)
            row_of[self.order] = np.arange(len(self.order))
            # No run crosses two spans, so its rows are contiguous in the set as well.
            spans = [run for span in spans for run in runs(self.order[span.start : span.stop])]
        for number, block in self.source.compute(spans, watch):
            if files is not None and (block.status == MISSING).any():
                require_folder(self.folder)
            yield (number if row_of is None else int(row_of[number])), block

    def _compare(
        self, unchanged: npt.NDArray[np.bool_] | None
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the finished rows that changed, whose file is missing, and that failed."""
        # Every file of a finished row is read, except where `unchanged`, (rows,) bool: seconds,
        # where computing took hours. Rows of unknown source, such as imported ones, count as
        # unchanged. So do those of missing files: an unmounted disk must not cost features.
        changed: list[int] = []
        gone: list[int] = []
        failed: list[int] = []
        origin, total, compared = self.origin, len(self.build.ids), 0
        with self.monitor.progress("checking", origin.plural.removesuffix("s")) as progress:
            for rows, status, before in self.build.existing():
                failed += rows[status != OK].tolist()
                compared += len(rows)
                if unchanged is not None:
                    read = ~unchanged[rows]
                    rows, status, before = rows[read], status[read], before[read]
                now = origin.crc32(rows if self.order is None else self.order[rows])
                here = (now != 0) | (origin.files is None)
                new = here & (now != before) & ((before != 0) | (status != OK))
                changed += rows[new].tolist()
                gone += rows[(before != 0) & ~here].tolist()
                progress(compared, total, 0)
        return changed, gone, sorted({*failed} - {*changed})

    def _numbers(self, span: Span) -> RowNumbers:
        """Return the row numbers in the source for a span of the set."""
        if self.order is None:
            return np.arange(span.start, span.stop)
        return self.order[span.start : span.stop]
