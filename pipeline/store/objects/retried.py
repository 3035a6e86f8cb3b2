"""Reads of remote files, repeated after transient errors."""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from pipeline.store.objects.remote import Remote, Span
from pipeline.store.objects.retry import Backoff, RemoteError, retry

_MOST_TOGETHER = 128

MOST_DESCRIPTION_BYTES = 1 << 24
"""Size limit of an index or `files.json`; parsing needs up to 30 times as much memory."""


def read_spans(
    remote: Remote, name: str, spans: Iterable[Span], together: int, log: Callable[[str], None]
) -> Iterator[tuple[Span, bytes]]:
    """Yield byte ranges, requested at most `together` bytes at a time; errors are retried."""
    waiting, backoff = [*spans], Backoff(log)
    while waiting:
        sizes = accumulate(stop - start for start, stop in waiting[:_MOST_TOGETHER])
        now = max(1, bisect([*sizes], together))
        some, waiting, error = waiting[:now], waiting[now:], None
        for span, data in zip(some, remote.read_spans(name, some), strict=True):
            if isinstance(data, RemoteError):
                waiting.append(span)
                error = data
                continue
            yield span, data
            backoff.progressed()
        # One wait for all: they were requested together.
        if error:
            backoff.failed(error)


def read_bounded(remote: Remote, name: str, most: int, log: Callable[[str], None]) -> bytes | None:
    """Return the at most `most` bytes of a small file; None if it does not exist."""

    def read() -> bytes:
        data = bytearray()

        def add(block: bytes) -> bool:
            data.extend(block)
            return len(data) <= most

        remote.read(name, add)
        if len(data) > most:
            raise RemoteError(
                f"{remote.shown}/{name} has more than {most:,} bytes, too many for a "
                "description of a feature set; check the URL"
            )
        return bytes(data)

    try:
        return retry(read, log)
    except RemoteError as error:
        if error.cause != "missing":
            raise
        return None
