"""Errors of remote files, and retries with exponential backoff."""

from collections.abc import Callable
from time import sleep
from typing import TypeVar

from pipeline.store.shards.format import ShardError

ATTEMPTS = 5
PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0

T = TypeVar("T")


class RemoteError(ShardError):
    """A feature set cannot be pushed or pulled, or a remote file read or written."""


class NotFound(RemoteError):
    """The remote file does not exist."""


class Forbidden(RemoteError):
    """HTTP 403. Object stores also return it for missing keys, so `read_offer` handles it."""


class NoByteRanges(RemoteError):
    """The server does not support range requests; a download of a whole file starts over."""


class TransientError(RemoteError):
    """A transient error: a retry may succeed."""

    def __init__(self, text: str, pause: float | None = None) -> None:
        super().__init__(text)
        self.pause = pause


class Backoff:
    """Exponential backoff: waits after transient errors, raises after several in a row."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log, self._failures = log, 0

    def progressed(self) -> None:
        self._failures = 0

    def failed(self, error: TransientError) -> None:
        """Wait; raise RemoteError after the last attempt."""
        self._failures += 1
        if self._failures >= ATTEMPTS:
            raise RemoteError(
                f"{error}; {ATTEMPTS} attempts in a row failed: rerun the command when the server "
                "responds; it resumes"
            ) from error
        pause = PAUSE_SECONDS * 2 ** (self._failures - 1) if error.pause is None else error.pause
        pause = min(pause, MAX_PAUSE_SECONDS)
        self._log(f"{error}; attempt {self._failures + 1} of {ATTEMPTS} in {pause:.0f} s")
        sleep(pause)


def retry(request: Callable[[], T], log: Callable[[str], None]) -> T:
    """Return the result of a request, retried with exponential backoff on transient errors."""
    backoff = Backoff(log)
    while True:
        try:
            return request()
        except TransientError as error:
            backoff.failed(error)
