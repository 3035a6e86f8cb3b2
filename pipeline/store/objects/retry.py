"""Errors of remote files, and retries with exponential backoff."""

from collections.abc import Callable
from time import sleep
from typing import Literal, TypeVar

from pipeline.store.errors import PipelineError

ATTEMPTS = 5
PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0

T = TypeVar("T")


# "missing": the file does not exist; "forbidden": HTTP 403; "no ranges": the server does not
# support range requests; "transient": a retry may succeed; "": anything else.
Cause = Literal["", "missing", "forbidden", "no ranges", "transient"]


class RemoteError(PipelineError):
    """A remote file or folder cannot be read or written."""

    def __init__(self, text: str, cause: Cause = "", pause: float | None = None) -> None:
        super().__init__(text)
        self.cause: Cause = cause
        self.pause = pause  # seconds until a retry, as requested by the server


class Backoff:
    """Exponential backoff: waits after transient errors, raises after several in a row."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log, self._failures = log, 0

    def progressed(self) -> None:
        self._failures = 0

    def failed(self, error: RemoteError) -> None:
        """Wait after a transient error; raise any other error, and after the last attempt."""
        if error.cause != "transient":
            raise error
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
        except RemoteError as error:
            backoff.failed(error)
