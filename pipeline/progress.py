"""How a job shows what it does: lines, progress, and seconds by stage."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

# Called with rows done, rows in all, and how many of them failed.
Progress = Callable[[int, int, int], None]


def no_progress(done: int, total: int, failed: int) -> None:
    """Take no notice."""


class Monitor(Protocol):
    """Where the lines and the progress of a job go; the commands give the terminal."""

    def log(self, line: str) -> None:
        """Take one line of counts, sizes, rates or warnings."""

    def progress(self, what: str, unit: str) -> AbstractContextManager[Progress]:
        """Give a function to call as work goes on.

        Parameters
        ----------
        what : is being done, such as the name of a recipe.
        unit : what is counted, in the singular, such as "image".
        """


class _Quiet:
    """Takes no notice of a job."""

    def log(self, line: str) -> None:
        """Take no notice."""

    def progress(self, what: str, unit: str) -> AbstractContextManager[Progress]:
        """Give a function that takes no notice."""
        return nullcontext(no_progress)


QUIET: Monitor = _Quiet()
"""The default of every job that is called from Python."""


READ, DECODE, FORWARD, WRITE = "read", "decode", "forward", "write"


class Stopwatch:
    """Adds up how long each stage took on every thread; stages overlap, so sums exceed the clock.

    Attributes
    ----------
    seconds : by stage.
    """

    def __init__(self) -> None:
        """Start with no stage."""
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def add_all(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of another stopwatch."""
        for stage, more in seconds.items():
            self.add(stage, more)

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Add the time that the block takes to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - started)
