"""What can fail at a remote file, and how often a request that failed is retried."""

import time
from collections.abc import Callable
from typing import TypeVar

from pipeline.shards.format import ShardError

ATTEMPTS = 5
PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0

T = TypeVar("T")


class ExchangeError(ShardError):
    """A feature set cannot be pushed or pulled as requested."""


class RemoteError(ExchangeError):
    """A remote file cannot be read or written."""


class NotFound(RemoteError):
    """The remote file does not exist."""


class Forbidden(RemoteError):
    """The remote file may not be read; object stores also return this for missing files."""


class NoByteRanges(RemoteError):
    """The server returns files from their beginning only."""


class TransientError(RemoteError):
    """The request failed in a way that a retry may cure.

    Attributes
    ----------
    pause : float or None. Seconds to wait before the next attempt, if the server names them.
    """

    def __init__(self, text: str, pause: float | None = None) -> None:
        """Keep the message and the pause."""
        super().__init__(text)
        self.pause = pause


class Backoff:
    """Exponential backoff: waits after transient errors, and gives up after several in a row."""

    def __init__(self, log: Callable[[str], None]) -> None:
        """Keep the function that logs a line before each wait."""
        self._log, self._failures = log, 0

    def progressed(self) -> None:
        """Count failures from 0 again."""
        self._failures = 0

    def failed(self, error: TransientError) -> None:
        """Wait, or raise RemoteError if this was the last attempt."""
        self._failures += 1
        if self._failures >= ATTEMPTS:
            raise RemoteError(
                f"{error}; {ATTEMPTS} attempts in a row failed: run the same command again when "
                "the server answers, it resumes where it stopped"
            ) from error
        pause = PAUSE_SECONDS * 2 ** (self._failures - 1) if error.pause is None else error.pause
        pause = min(pause, MAX_PAUSE_SECONDS)
        self._log(f"{error}; attempt {self._failures + 1} of {ATTEMPTS} in {pause:.0f} s")
        time.sleep(pause)


def retry(request: Callable[[], T], log: Callable[[str], None]) -> T:
    """Return what a request returns, retried after transient errors.

    Raises
    ------
    RemoteError
        Another error, or several transient ones in a row.
    """
    backoff = Backoff(log)
    while True:
        try:
            return request()
        except TransientError as error:
            backoff.failed(error)
