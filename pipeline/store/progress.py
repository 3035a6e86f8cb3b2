"""Reporting of jobs: log lines, progress, and seconds by stage."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

# Called with the rows done, the total, and the number of failed rows.
Progress = Callable[[int, int, int], None]

# Called by a task to report its progress; the caller's function receives the same arguments.
OnProgress = Callable[..., None]


def no_progress(done: int, total: int, failed: int) -> None:
    """Do nothing."""


class Monitor(Protocol):
    """Receiver of the log lines and progress of a job: `progress_bar`, or your own object."""

    def log(self, line: str) -> None:
        """Receive one line of counts, sizes, rates or warnings."""

    def progress(self, what: str, unit: str) -> AbstractContextManager[Progress]:
        """Return a context that yields a function of rows done, total, and failed rows.

        Parameters
        ----------
        what : str. Description of the work, such as the name of a recipe.
        unit : str. Singular noun for what is counted, such as "image".
        """


class _Quiet:
    """Discards everything."""

    def __repr__(self) -> str:
        return "QUIET"

    def log(self, line: str) -> None:
        """Discard a line."""

    def progress(self, what: str, unit: str) -> AbstractContextManager[Progress]:
        """Return a context that yields a function that does nothing."""
        return nullcontext(no_progress)


QUIET: Monitor = _Quiet()
"""Default monitor of every job that is called from Python."""


class _Bars:
    """Shows progress bars, and prints lines."""

    def log(self, line: str) -> None:
        """Print a line above the bars."""
        from tqdm import tqdm

        tqdm.write(line)

    @contextmanager
    def progress(self, what: str, unit: str) -> Iterator[Progress]:
        """Yield a function that updates a bar, which is shown from its first call on."""
        bar: Any = None

        def show(done: int, total: int, failed: int) -> None:
            nonlocal bar
            if bar is None:
                bar = _tqdm()(
                    desc=what,
                    unit="B" if unit == "byte" else f" {unit}s",
                    unit_scale=unit == "byte",
                    total=total,
                    initial=done,
                )
            bar.set_postfix_str(f"{failed} failed" if failed else "", refresh=False)
            bar.update(done - bar.n)

        try:
            yield show
        finally:
            if bar is not None:
                bar.close()


def progress_bar() -> Monitor:
    """Return a monitor that shows bars, as widgets in a notebook, and prints log lines.

    Examples
    --------
    >>> features = pipeline.extract(
    ...     "data/mine", "features/mine", recipe="resnet152-pool", monitor=pipeline.progress_bar()
    ... )  # doctest: +SKIP
    """
    return _Bars()


def _tqdm() -> Any:
    # Imported here: detecting a notebook takes longer than the rest of this module.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets has bars of text
        from tqdm.auto import tqdm
    return tqdm


READ, DECODE, FORWARD, WRITE = "read", "decode", "forward", "write"


class Stopwatch:
    """Accumulates the seconds of each stage over all threads; sums exceed the wall time."""

    def __init__(self) -> None:
        """Start without stages."""
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
        """Add the duration of the block to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - started)
