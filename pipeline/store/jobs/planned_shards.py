"""The rows of a dataset as shards that are computed one by one, for a feature set in a store."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from pipeline.store.hashing import sha256_of_json, sha256_of_texts
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.object_shards import MOST_INDEX_BYTES
from pipeline.store.jobs.options import Storage
from pipeline.store.jobs.origins import missing_files, require_folder
from pipeline.store.jobs.sharded_source import OpenShard, ShardKey, ShardRows
from pipeline.store.jobs.worker import seen_rows
from pipeline.store.objects.locate import open_writable
from pipeline.store.objects.urls import common_folder
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock, require_unique_ids
from pipeline.store.shards.index import index_in
from pipeline.store.shards.plan import ShardPlan, Span, default_rows_per_shard
from pipeline.store.workers.place import Place
from pipeline.store.workers.shipping import Ship


def rows_of_shards(url: str, header: FeatureHeader, storage: Storage) -> int:
    """Return the rows per shard: as requested, as in the finished set, or by their size."""
    if storage.rows_per_shard is not None:
        return storage.rows_per_shard
    index = index_in(open_writable(url), MOST_INDEX_BYTES)
    return index.rows_per_shard if index else default_rows_per_shard(header.row_bytes)


class PlannedShards:
    """The rows of a source as a `pipeline.store.jobs.object_shards.ShardedSource`."""

    def __init__(self, source: FeatureSource, rows_per_shard: int, place: Place) -> None:
        require_unique_ids(source.ids, "the dataset")
        self._source, self._elsewhere = source, place.elsewhere
        self._plan = ShardPlan.equal(len(source.ids), rows_per_shard)
        self.header: FeatureHeader = source.header
        self.unit: str = source.unit
        self.gpu: bool = source.gpu
        self.rows_per_shard: int | None = rows_per_shard

    def shard_keys(self) -> list[ShardKey]:
        """Return the key of each shard: of its ids, and of the fingerprint of their sources."""
        keys, origin = [], self._source.origin
        for number in range(self._plan.shards):
            rows = slice(*self._plan.starts[number : number + 2])
            ids = sha256_of_texts(self._source.ids[rows])
            keys.append(ShardKey(ids[:12], sha256_of_json(origin.digest(rows))[:12]))
        return keys

    def open_shard(self, number: int, threads: int | None, ship: Ship) -> OpenShard:
        """Return a function that opens the rows of a shard, or a worker's part of the source."""
        span, source = self._plan.span(number), self._source
        missing: set[int] = set()
        if (files := source.origin.files) is not None:
            absent = missing_files(files[span.start : span.stop])
            missing = {row for row, is_missing in enumerate(absent) if is_missing}
            if missing:
                require_folder(common_folder(files))
        if not self._elsewhere:
            return partial(_opened, lambda: source, span, missing)
        part = source.part(np.arange(span.start, span.stop), threads, ship)
        return partial(_opened, part, Span(0, len(span)), missing)


def _opened(
    part: Callable[[], FeatureSource], span: Span, missing: Collection[int]
) -> AbstractContextManager[ShardRows]:
    return nullcontext(_Rows(part(), span, missing))


@dataclass(frozen=True)
class _Rows:
    """Some rows of a source, as a source of their own; `missing` are those without a file."""

    source: FeatureSource
    span: Span
    missing: Collection[int]

    @property
    def header(self) -> FeatureHeader:
        return self.source.header

    @cached_property
    def ids(self) -> Sequence[str]:
        return self.source.ids[self.span.start : self.span.stop]

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Yield the rows of spans, which are counted from the first of these rows."""
        first = self.span.start
        of_source = [Span(first + span.start, first + span.stop) for span in spans]
        missing = {first + row for row in self.missing}
        for row, block in seen_rows(self.source, of_source, missing, watch):
            yield row - first, block
