"""What push and pull ask of a place with files, how it fails, and how a request is repeated."""

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Protocol, TypeVar

from pipeline.shards.format import ShardError

ATTEMPTS = 5
PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0

T = TypeVar("T")


class ExchangeError(ShardError):
    """A feature set cannot be pushed or pulled as asked."""


class RemoteError(ExchangeError):
    """The other side does not give or take a file."""


class NotThere(RemoteError):
    """The other side has no such file."""


class Forbidden(RemoteError):
    """The other side does not let this file be read; buckets say so of files that they lack."""


class NoByteRanges(RemoteError):
    """The other side gives a file from its beginning only."""


class TransientError(RemoteError):
    """The other side failed in a way that may pass.

    Attributes
    ----------
    pause : seconds that it asks for before the next attempt; None: it does not say.
    """

    def __init__(self, text: str, pause: float | None = None) -> None:
        """Take the message."""
        super().__init__(text)
        self.pause = pause


class Remote(Protocol):
    """A place with files that are read.

    Attributes
    ----------
    shown : its URL without secrets, for messages.
    """

    shown: str

    def beside(self, suffix: str) -> "Remote":
        """Return the place whose name has a suffix more."""

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Generator[bytes]:
        """Yield the bytes `start` to `stop` - 1 of a file, or fewer where it ends before.

        Parameters
        ----------
        name : of the file.
        start, stop : None: to its end, however far that is; the caller closes the generator once
            it has enough.

        Raises
        ------
        NotThere, Forbidden, NoByteRanges, TransientError, RemoteError
        """


class WritableRemote(Remote, Protocol):
    """A place with files that can be added to."""

    def beside(self, suffix: str) -> "WritableRemote":
        """Return the place whose name has a suffix more."""

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None if it is not there.

        Raises
        ------
        TransientError, RemoteError
        """

    def send(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file that appears whole or not at all; what `blocks` raises leaves none.

        Raises
        ------
        TransientError, RemoteError
        """


class Backoff:
    """Waits after failures that may pass, longer after each, and gives up after several."""

    def __init__(
        self, log: Callable[[str], None], sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Take what gets a line before each wait, and what waits."""
        self._log, self._sleep, self._failures = log, sleep, 0

    def progressed(self) -> None:
        """Count failures from 0 again."""
        self._failures = 0

    def failed(self, error: TransientError) -> None:
        """Wait, or raise the error if it was the last attempt."""
        self._failures += 1
        if self._failures >= ATTEMPTS:
            raise RemoteError(
                f"{error}; {ATTEMPTS} attempts in a row failed: give the same command again when "
                "the other side answers, it goes on where it stopped"
            ) from error
        pause = PAUSE_SECONDS * 2 ** (self._failures - 1) if error.pause is None else error.pause
        pause = min(pause, MAX_PAUSE_SECONDS)
        self._log(f"{error}; attempt {self._failures + 1} of {ATTEMPTS} in {pause:.0f} s")
        self._sleep(pause)


def repeated(request: Callable[[], T], log: Callable[[str], None]) -> T:
    """Return what a request returns, which is made again after failures that may pass.

    Raises
    ------
    RemoteError
        It failed in another way, or several times in a row.
    """
    backoff = Backoff(log)
    while True:
        try:
            return request()
        except TransientError as error:
            backoff.failed(error)


def without_secrets(url: str) -> str:
    """Return a URL without user, password and query, which may be a signature, for messages."""
    scheme, there, rest = url.partition("://")
    if not there:
        return url
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def read_bounded(remote: Remote, name: str, most: int, log: Callable[[str], None]) -> bytes:
    """Return all bytes of a small file.

    Raises
    ------
    RemoteError
        It has more than `most` bytes, is not there, or does not come.
    """

    def read() -> bytes:
        found = bytearray()
        with closing(remote.read(name)) as blocks:
            for block in blocks:
                found += block
                if len(found) > most:
                    raise RemoteError(
                        f"{remote.shown}/{name} has more than {most:,} bytes, which no description "
                        "of a feature set has; it is not read: check the URL"
                    )
        return bytes(found)

    return repeated(read, log)
