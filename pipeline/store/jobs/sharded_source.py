"""Interface of rows that come in shards of their own, for feature sets in a store."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.workers.shipping import Ship


class ShardKey(NamedTuple):
    """What a shard was made from, as 12 hex digits each."""

    rows: str
    """Of the names of its rows, or of its input file."""
    content: str
    """Of all that decides its features; "" if its input is missing."""


class ShardRows(Protocol):
    """The rows of one shard; what a `FeatureSource` has of them."""

    @property
    def header(self) -> FeatureHeader: ...
    @property
    def ids(self) -> Sequence[str]: ...
    def compute(
        self, spans: Sequence[Span], watch: Stopwatch
    ) -> Iterator[tuple[int, RowBlock]]: ...


OpenShard = Callable[[], AbstractContextManager[ShardRows]]
"""Opens the rows of one shard where they are computed; picklable."""


class ShardedSource(Protocol):
    """Rows that come in shards of their own; the attributes are those of a `FeatureSource`."""

    @property
    def header(self) -> FeatureHeader: ...
    @property
    def unit(self) -> str: ...
    @property
    def gpu(self) -> bool: ...
    @property
    def rows_per_shard(self) -> int | None: ...  # None: each shard has its own number

    def shard_keys(self) -> Sequence[ShardKey]:
        """Return the key of each shard, without the header."""

    def open_shard(self, number: int, threads: int | None, ship: Ship) -> OpenShard:
        """Return a function that opens the rows of a shard; `ship` carries files to it."""
