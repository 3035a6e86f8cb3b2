"""Feature sets in a store: each shard is computed, verified and published by itself.

A shard is the unit of work, failure and resumption. The process that computes it, this one or a
worker that shares no folder with it, writes and verifies it in a temporary folder, puts it to the
store, and then puts a record next to the set: `.work/NAME/shard-00003-of-00012.ROWS-CONTENT.json`,
with digests of the names and of the contents of its inputs. A shard with such a record is finished,
so a listing shows where a run resumes. The index is put last, and removed before a shard that it
lists is replaced.
"""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from pipeline.store.hashing import sha256_of_json
from pipeline.store.jobs.options import Storage
from pipeline.store.jobs.publish_shard import ObjectTask, ShardRecord, publish_shard
from pipeline.store.jobs.sharded_source import ShardedSource, ShardKey
from pipeline.store.objects.lease import Lease, only_writer
from pipeline.store.objects.locate import open_writable
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import retry
from pipeline.store.progress import Monitor, OnProgress, Stopwatch
from pipeline.store.registry import guests_of_calls
from pipeline.store.schema import decode
from pipeline.store.shards.format import OtherShard
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex, index_in, index_of
from pipeline.store.shards.plan import shard_name
from pipeline.store.wording import counted
from pipeline.store.workers.place import Executor, Place
from pipeline.store.workers.shipping import Ship, Shipping, scratch, shared

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

_RECORD = re.compile(r"(shard-(\d+)-of-(\d+)\.h5)\.([0-9a-f]{12})-([0-9a-f]{12})\.json")
MOST_INDEX_BYTES = 1 << 30
"""Size limit of an index that is continued, of about three million shards."""
_MOST_RECORD_BYTES = 1 << 16
# Records that are read at once.
_REQUESTS = 16


def make_object_shards(
    source: ShardedSource,
    out: str,
    storage: Storage,
    place: Place,
    monitor: Monitor,
    watch: Stopwatch,
) -> FeatureIndex:
    """Compute the missing shards of a feature set in a store, and publish it; see `make_features`.

    Changed inputs are found by their sizes and times, ETags or versions: a shard with one is
    computed as a whole.
    """
    started = time.monotonic()
    remote = open_writable(out)
    work = remote.in_parent(".work", remote.name)
    with only_writer(work, remote.shown, monitor.log) as lease:
        job = _Job(source, out, remote, work, storage, monitor)
        pending = job.pending()
        monitor.log(
            f"{counted(len(job.names), 'shard')} of rows {source.header.row_shape} "
            f"{source.header.dtype} in {remote.shown}; {len(job.names) - len(pending)} are done"
        )
        try:
            rows = job.compute(pending, place, lease, watch)
        except KeyboardInterrupt:
            monitor.log("interrupted: finished shards are kept; the same command resumes")
            raise
        index = job.publish(lease, changed=bool(pending))
    seconds = time.monotonic() - started
    rate = rows / max(seconds, 1e-9)
    monitor.log(
        f"{rows} computed in {seconds:.1f} s ({rate:.1f} {source.unit}s/s), "
        f"{index.failed_rows} failed"
    )
    place.write_summary(Path(out), index.metadata, rows, seconds, watch)
    return index


class _Job:
    """A feature set in a store: what it has, and what is pending."""

    def __init__(
        self,
        source: ShardedSource,
        out: str,
        remote: Remote,
        work: Remote,
        storage: Storage,
        monitor: Monitor,
    ) -> None:
        self._source, self._out, self._remote, self._work = source, out, remote, work
        self._storage, self._monitor = storage, monitor
        about = source.header.metadata() | {"compress": storage.compress}
        for ignored in ("created_by", "trained_on"):
            about.pop(ignored, None)
        asked = source.shard_keys()
        self._keys = [
            ShardKey(key.rows, sha256_of_json([about, key.content])[:12]) for key in asked
        ]
        self._there = remote.files()
        # Of each shard: the number of shards, the key and the file of its records.
        self._records: dict[int, dict[tuple[int, ShardKey], str]] = defaultdict(dict)
        for file in work.files():
            if match := _RECORD.fullmatch(file):
                key = ShardKey(match[4], match[5])
                self._records[int(match[2])][int(match[3]), key] = file
        self._before = index_in(remote, MOST_INDEX_BYTES) if INDEX_FILE in self._there else None
        self._listed = {entry.file: entry for entry in self._before.shards} if self._before else {}
        self._kept: dict[int, ShardKey] = {}  # missing inputs, with the keys of their absence
        self._keep_missing([number for number, key in enumerate(asked) if not key.content])
        total = len(self._keys)
        # The number of shards when each was written: a set that grows keeps its shards.
        current = {
            count
            for number, records in self._records.items()
            for count, key in records
            if number < total and count <= total and key == self._keys[number]
        }
        ends = [0, *sorted(current | {total})]
        self._counts = [end for start, end in pairwise(ends) for _ in range(start, end)]
        self.names: list[str] = [shard_name(n, count) for n, count in enumerate(self._counts)]
        self._done: dict[int, ShardRecord] = {}

    def pending(self) -> list[int]:
        """Return the shards to compute; raise if the output holds another set."""
        self._require_same_set()
        numbers = [
            number
            for number, name in enumerate(self.names)
            if name in self._there and self._record_file(number) is not None
        ]
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="records") as pool:
            for number, record in zip(numbers, pool.map(self._record, numbers), strict=True):
                if record is None or record.bytes != self._there[self.names[number]].size:
                    name = self.names[number]
                    self._monitor.log(f"will be recomputed: {name} is not as recorded")
                elif number in self._kept or not (
                    self._storage.retry_failed and record.entry.failed_rows
                ):
                    self._done[number] = record
        for number in self._kept.keys() - self._done.keys():
            self._keys[number] = self._kept[number]
        failed = sum(record.entry.failed_rows for record in self._done.values())
        if failed and not self._storage.retry_failed:
            rows = counted(failed, "row")
            self._monitor.log(f"{rows} failed before; `retry_failed=True` recomputes their shards")
        return [number for number in range(len(self.names)) if number not in self._done]

    def compute(self, pending: Sequence[int], place: Place, lease: Lease, watch: Stopwatch) -> int:
        """Compute and publish some shards, here or on workers; return the number of their rows."""
        if not pending:
            return 0
        guests, source, rows, failed = guests_of_calls(), self._source, 0, 0
        ship: Ship = shared
        if place.scheduler is not None:
            files = self._remote.in_parent(".work", "files")
            ship = Shipping(files, f"{self._out.rpartition('/')[0]}/.work/files", self._monitor.log)

        def tasks() -> Iterator[tuple[int, ObjectTask]]:
            for number in pending:
                key = self._keys[number]
                opens = source.open_shard(number, place.threads, ship)
                self._forget(number)  # not before it is known that the inputs can be read
                yield (
                    number,
                    ObjectTask(
                        self._out,
                        self.names[number],
                        self._counts[number],
                        f"{self.names[number]}.{key.rows}-{key.content}.json",
                        source.header,
                        self._storage.compress,
                        lease.name,
                        opens,
                        guests,
                    ),
                )

        under_way: dict[int, tuple[int, int]] = {}  # rows and failures of shards, as reported
        finished = sum(record.entry.rows for record in self._done.values())
        largest = max((record.entry.rows for record in self._done.values()), default=0)

        def on_progress(number: int, done: int, failures: int) -> None:
            if number not in self._done:
                under_way[number] = done, failures
                show()

        def show() -> None:
            done = finished + sum(some for some, _ in under_way.values())
            # Until all have been read, nobody knows how many rows the input files have.
            most = max([largest, *(some for some, _ in under_way.values())])
            failing = failed + sum(some for _, some in under_way.values())
            progress(done, max(done, most * len(self.names)), failing)

        with ExitStack() as entered:
            name = str(source.header.recipe["name"])
            progress = entered.enter_context(self._monitor.progress(name, source.unit))
            execute: Executor = _here
            if place.elsewhere:
                execute = entered.enter_context(place.executor(self._monitor, source.gpu))
            results = execute(publish_shard, tasks(), on_progress, lambda: None)
            for result in entered.enter_context(closing(results)):
                lease.require()
                self._done[result.number] = result.record
                under_way.pop(result.number, None)
                watch.add_all(result.seconds)
                entry = result.record.entry
                rows, failed = rows + entry.rows, failed + entry.failed_rows
                finished, largest = finished + entry.rows, max(largest, entry.rows)
                show()
        return rows

    def publish(self, lease: Lease, changed: bool) -> FeatureIndex:
        """Put the index, and remove the shards of a set that this one replaces."""
        shards, first = [], 0
        for number in range(len(self.names)):
            record = self._done[number]
            shards.append((replace(record.entry, first_row=first), record.created_by))
            first += record.entry.rows
        size = self._source.rows_per_shard or max(entry.rows for entry, _ in shards)
        index = index_of(self._source.header, size, shards)
        if changed or self._before is None or self._before.shards != index.shards:
            lease.require()
            with TemporaryDirectory(prefix="pipeline-", dir=scratch()) as folder:
                index.write(Path(folder))
                retry(
                    partial(self._remote.put, INDEX_FILE, Path(folder, INDEX_FILE)),
                    self._monitor.log,
                )
        names = {*self.names}
        for file in self._there:
            if re.fullmatch(r"shard-\d+-of-\d+\.h5", file) and file not in names:
                self._remote.remove(file)
        for number, records in self._records.items():
            for (count, _), file in records.items():
                if number >= len(names) or count != self._counts[number]:
                    self._work.remove(file)
        return index

    def _keep_missing(self, numbers: Sequence[int]) -> None:
        """Count finished shards as current whose inputs are missing: those cost no features."""
        before = self._before
        if before is None or self._source.header.difference(before.header.metadata()):
            return
        for number in numbers:
            absent = self._keys[number]
            known = [key for _, key in self._records[number] if key.rows == absent.rows]
            if len(known) == 1 and known != [absent]:
                self._kept[number], self._keys[number] = absent, known[0]
        if self._kept:
            shards = counted(len(self._kept), "shard")
            self._monitor.log(f"{shards} of inputs that are missing now: kept unchanged")

    def _require_same_set(self) -> None:
        """Raise if the store has another finished set, unless it may be replaced or extended."""
        before, storage = self._before, self._storage
        if before is None or storage.update:
            return
        shown, shards = self._remote.shown, len(before.shards)
        remedy = "`update=True` replaces it, or choose another output"
        if unlike := self._source.header.difference(before.header.metadata()):
            raise OtherShard(f"{shown} {unlike}; {remedy}")
        for number, entry in enumerate(before.shards):
            count = int(entry.file.rpartition("-")[2].removesuffix(".h5"))
            recorded = {key.rows for of, key in self._records[number] if of == count}
            if number >= len(self._keys) or recorded != {self._keys[number].rows}:
                raise OtherShard(
                    f"{shown} has {entry.file} with other rows than requested, or without a record "
                    f"in {self._work.shown}; {remedy}"
                )
        if len(self._keys) > shards and not storage.add:
            raise OtherShard(
                f"{shown} has {counted(shards, 'shard')}, and {len(self._keys)} are requested; "
                f"`add=True` appends the others, or choose another output"
            )

    def _forget(self, number: int) -> None:
        """Remove the records of a shard, and the index that lists it, before it is replaced."""
        # Those of other names are removed once the set is published, which may be another run's.
        for (count, _), file in self._records[number].items():
            if count == self._counts[number]:
                self._work.remove(file)
        if self._before is not None and self.names[number] in self._there:
            self._remote.remove(INDEX_FILE)
            self._before = None

    def _record_file(self, number: int) -> str | None:
        count, records = self._counts[number], self._records[number]
        # Of two records, one is of a late task of an older run, and the shard may be, too.
        several = sum(of == count for of, _ in records) > 1
        return None if several else records.get((count, self._keys[number]))

    def _record(self, number: int) -> ShardRecord | None:
        """Return the record of a finished shard, from the index if that lists it."""
        name = self.names[number]
        if (entry := self._listed.get(name)) is not None:
            assert self._before is not None
            created_by = entry.created_by or self._before.header.created_by
            return ShardRecord(entry=entry, created_by=created_by, bytes=self._there[name].size)
        file = str(self._record_file(number))
        read = partial(self._work.beginning, file, _MOST_RECORD_BYTES)
        try:
            return decode(retry(read, self._monitor.log), ShardRecord)
        except ValueError:
            return None


def _here(
    task: Callable[..., Result],
    jobs: Iterable[tuple[int, Any]],
    on_progress: OnProgress,
    stop: Callable[[], None],
) -> Generator[Result, None, None]:
    """Run tasks in this process, as an `Executor`."""
    for number, argument in jobs:
        yield task(number, argument, on_progress)
