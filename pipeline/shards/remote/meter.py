"""How much of a transfer is done: bytes, shown as progress and returned at its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.progress import Monitor, Progress, no_progress
from pipeline.shards.index import FeatureIndex


@dataclass(frozen=True)
class Transfer:
    """What was moved.

    Attributes
    ----------
    index : FeatureIndex. Of the set at the destination.
    moved : int. Bytes that were sent or received.
    size : int. Bytes of the whole shared set without its index.
    """

    index: FeatureIndex
    moved: int
    size: int


class Meter:
    """Counts the bytes of a transfer.

    Attributes
    ----------
    moved : int. Bytes that were sent or received.
    """

    def __init__(self, monitor: Monitor) -> None:
        """Start at 0."""
        self._monitor, self.log, self.moved = monitor, monitor.log, 0
        self._progress: Progress = no_progress
        self._done = self._total = 0

    @contextmanager
    def expecting(self, what: str, total: int) -> Iterator[None]:
        """Show as progress what is moved, or found to exist, of a total of bytes."""
        with self._monitor.progress(what, "byte") as self._progress:
            self._done, self._total = 0, total
            yield
        self._progress = no_progress

    def add(self, size: int) -> None:
        """Count bytes that were moved."""
        self.moved += size
        self.exists(size)

    def exists(self, size: int) -> None:
        """Count bytes of the total that need not be moved."""
        self._done += size
        self._progress(self._done, max(self._total, self._done), 0)
