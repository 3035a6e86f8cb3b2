"""Progress of a transfer in bytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.store.progress import Monitor, Progress, no_progress
from pipeline.store.shards.index import FeatureIndex


@dataclass(frozen=True)
class Transfer:
    """Result of a transfer."""

    index: FeatureIndex  # of the set at the destination
    moved: int  # bytes sent or received
    size: int  # bytes of the whole shared set without its index


class Meter:
    """Byte counter of a transfer."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self.log: Callable[[str], None] = monitor.log
        self.moved: int = 0
        self._progress: Progress = no_progress
        self._done = self._total = 0

    @contextmanager
    def expecting(self, what: str, total: int) -> Iterator[None]:
        """Show progress towards a total of bytes, transferred or already present."""
        with self._monitor.progress(what, "byte") as self._progress:
            self._done, self._total = 0, total
            yield
        self._progress = no_progress

    def add(self, size: int) -> None:
        """Count transferred bytes."""
        self.moved += size
        self.exists(size)

    def exists(self, size: int) -> None:
        """Count bytes of the total that are already present."""
        self._done += size
        self._progress(self._done, max(self._total, self._done), 0)
