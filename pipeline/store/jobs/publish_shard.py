"""One shard of a feature set in a store: computed, verified, put and recorded by one process."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from pipeline.store.builder.unfinished_shard import finished_shard
from pipeline.store.jobs.sharded_source import OpenShard, ShardRows
from pipeline.store.jobs.worker import require_same
from pipeline.store.objects.locate import open_writable
from pipeline.store.objects.retry import retry
from pipeline.store.progress import WRITE, OnProgress, Stopwatch
from pipeline.store.registry import Guests, adopt
from pipeline.store.schema import Natural
from pipeline.store.shards.format import OK, FeatureHeader, RowBlock, ShardEntry, ShardError
from pipeline.store.shards.plan import Span
from pipeline.store.shards.writer import write_shard
from pipeline.store.workers.shipping import scratch

_SECONDS_BETWEEN_REPORTS = 1.0

_log = logging.getLogger(__name__)

# The threads of a worker share one network.
_opening = Lock()


@dataclass(frozen=True)
class ObjectTask:
    """What is needed to compute and publish a shard."""

    out: str
    file: str
    shards: int
    record: str
    header: FeatureHeader
    compress: bool
    lease: str
    """File of the run's lease: a task of an older run publishes nothing."""
    open: OpenShard
    guests: Sequence[Guests]


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """A published shard, as the record next to the set has it."""

    entry: ShardEntry
    created_by: str
    bytes: Natural


@dataclass(frozen=True)
class PublishedShard:
    number: int
    record: ShardRecord
    seconds: dict[str, float]  # by stage


def publish_shard(number: int, task: ObjectTask, on_progress: OnProgress) -> PublishedShard:
    """Compute a shard, verify it, and put it and its record to the store."""
    watch = Stopwatch()
    with ExitStack() as entered:
        with _opening:
            adopt(task.guests)
            source = entered.enter_context(task.open())
        require_same(task.header, source.header)
        folder = entered.enter_context(TemporaryDirectory(prefix="pipeline-", dir=scratch()))
        path = Path(folder, task.file)
        blocks = _reported(source, watch, partial(on_progress, number))
        write_shard(path, task.header, source.ids, blocks, number, task.shards, task.compress)
        with watch.timing(WRITE):
            finished = finished_shard(path, task.header, source.ids, 0)
            record = ShardRecord(
                entry=finished.entry, created_by=finished.created_by, bytes=path.stat().st_size
            )
            remote = open_writable(task.out)
            work = remote.in_parent(".work", remote.name)
            if retry(partial(work.size, task.lease), _log.warning) is None:
                raise ShardError(f"{remote.shown}: the run of this task has ended")
            retry(partial(remote.put, task.file, path), _log.warning)
            text = json.dumps(asdict(record), sort_keys=True).encode()
            retry(partial(work.put, task.record, text), _log.warning)
    return PublishedShard(number, record, watch.seconds)


def _reported(
    source: ShardRows, watch: Stopwatch, report: Callable[[int, int], None]
) -> Iterator[RowBlock]:
    """Yield the rows of a source in order, and report their number now and then."""
    done = failed = 0
    reported = time.monotonic()
    for _, block in source.compute([Span(0, len(source.ids))], watch):
        done, failed = done + len(block), failed + int((block.status != OK).sum())
        if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            report(done, failed)
        yield block
