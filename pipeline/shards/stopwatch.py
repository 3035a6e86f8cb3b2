"""Seconds of work by stage: reading, decoding, the forward pass, writing."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

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
