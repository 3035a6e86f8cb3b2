"""Bytes that arrive: resumed where they broke off, bounded, and written where they belong."""

import hashlib
import os
from bisect import bisect
from collections.abc import Callable
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from pipeline.shards.remote.meter import Meter
from pipeline.shards.remote.remote import Remote
from pipeline.shards.remote.retry import (
    ATTEMPTS,
    Backoff,
    ExchangeError,
    NoByteRanges,
    RemoteError,
    TransientError,
)
from pipeline.shards.remote.spans import Spans

COPIES = 2
# Bytes between two requested spans that are moved with them: requests around them take longer.
_GAP = 1 << 14
_PIECE = 1 << 18
# Of pieces that are requested together; each is written as it arrives.
_TOGETHER_PIECES, _TOGETHER_BYTES = 128, 1 << 22
_BLOCK = 1 << 20


class DamagedCopy(ExchangeError):
    """The remote copy differs from what was pushed."""


def fetch_file(
    remote: Remote, path: Path, sha256: str, size: int | None, most: int, meter: Meter
) -> None:
    """Fetch a file as `NAME.part`, resumed where it broke off, and rename it once it is verified.

    Parameters
    ----------
    remote : holds the file, under the name of `path`.
    path : where to store it.
    sha256, size : of the file; size None: unknown.
    most : bytes that it may have if its size is unknown; what follows them is not read.
    meter : counts what arrives.

    Raises
    ------
    DamagedCopy
        Several copies in a row had another SHA-256.
    RemoteError
        The server does not answer, or does not have the file.
    """
    end = most if size is None else size

    def fetch(part: Path) -> str:
        return _fetch_part(remote, path.name, part, size, end, meter)

    store_verified(fetch, path, sha256, f"{remote.shown}/{path.name}", meter)


def store_verified(
    fetch: Callable[[Path], str], path: Path, sha256: str, what: str, meter: Meter
) -> None:
    """Store what is fetched atomically once it has its SHA-256, fetched once more if it has not.

    Parameters
    ----------
    fetch : completes `NAME.part` and returns the SHA-256 of what it fetched.
    path : final name.
    sha256 : the expected one.
    what : the remote file, for messages.
    meter : logs a damaged copy.

    Raises
    ------
    DamagedCopy
        Several copies in a row had another SHA-256.
    """
    part = path.with_name(f"{path.name}.part")
    found: list[str] = []
    while len(found) < COPIES:
        digest = fetch(part)
        if digest == sha256:
            part.replace(path)
            return
        part.unlink()
        found.append(digest)
        meter.log(f"{path.name} arrived with the SHA-256 {digest}, not its own")
    raise DamagedCopy(
        f"{what} arrived {COPIES} times without the SHA-256 {sha256}: found "
        f"{', '.join(dict.fromkeys(found))}; the copy there is damaged or of another set: tell "
        "its publisher, or pull from another place"
    )


def _fetch_part(
    remote: Remote, name: str, part: Path, size: int | None, end: int, meter: Meter
) -> str:
    """Append to a part what it lacks; return the SHA-256 of all of it."""
    backoff, starts = Backoff(meter.log), 1
    with part.open("ab+") as stream:
        digest, there = _hash_of(stream, end)
        meter.exists(there)
        while there < end:
            try:
                with closing(remote.read(name, there)) as blocks:
                    for block in blocks:
                        block = block[: end - there]
                        stream.write(block)
                        digest.update(block)
                        there += len(block)
                        meter.add(len(block))
                        backoff.progressed()
                        if there == end:
                            break
                if size is None:
                    break
                if there < end:
                    raise TransientError(
                        f"{remote.shown}/{name} ended after {there:,} of {end:,} bytes"
                    )
            except NoByteRanges as error:
                starts += 1
                if starts > ATTEMPTS:
                    raise RemoteError(
                        f"{error}, and broke off {ATTEMPTS} times; pull from another place"
                    ) from error
                meter.log(f"{error}; {name} is fetched from its beginning")
                stream.truncate(0)
                digest, there = hashlib.sha256(), 0
            except TransientError as error:
                stream.flush()
                backoff.failed(error)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def _hash_of(stream: BinaryIO, most: int) -> tuple["hashlib._Hash", int]:
    """Return SHA-256 and size of an open file; one of more than `most` bytes is emptied."""
    if stream.seek(0, os.SEEK_END) > most:
        stream.truncate(0)
    stream.seek(0)
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest, stream.tell()


def fetch_spans(remote: Remote, name: str, path: Path, spans: Spans, meter: Meter) -> None:
    """Fetch spans of a file, several at a time, into their places in a local file.

    Nothing is verified here. Spans that are close to each other arrive in one piece; of that, too,
    only the requested bytes are written, since those between may be verified ones.

    Parameters
    ----------
    remote, name : what holds the file, and under which name.
    path : existing file to write to.
    spans : what is requested.
    meter : counts what arrives.

    Raises
    ------
    NoByteRanges
        The server does not serve ranges of bytes.
    RemoteError
        The server does not answer, or does not have the file.
    """
    waiting, backoff = _pieces(spans), Backoff(meter.log)
    with path.open("rb+", buffering=0) as stream:
        while waiting:
            together = {_bounds(piece): piece for piece in _first_of(waiting)}
            waiting, error = waiting[len(together) :], None
            with closing(remote.read_spans(name, [*together])) as arriving:
                for bounds, data in arriving:
                    if isinstance(data, TransientError):
                        waiting.append(together[bounds])
                        error = data
                        continue
                    for start, stop in together[bounds]:
                        stream.seek(start)
                        stream.write(memoryview(data)[start - bounds[0] : stop - bounds[0]])
                    meter.add(len(data))
                    backoff.progressed()
            if error:
                backoff.failed(error)
        os.fsync(stream.fileno())


def bytes_moved_for(spans: Spans) -> int:
    """Return how many bytes `fetch_spans` moves for some spans."""
    return sum(stop - start for start, stop in map(_bounds, _pieces(spans)))


def _pieces(spans: Spans) -> list[Spans]:
    """Return spans in groups, each for one request; long ones are cut."""
    pieces: list[Spans] = []
    for first, last in spans:
        for start in range(first, last, _PIECE):
            stop = min(start + _PIECE, last)
            if pieces and start - pieces[-1][-1][1] <= _GAP and stop - pieces[-1][0][0] <= _PIECE:
                pieces[-1].append((start, stop))
            else:
                pieces.append([(start, stop)])
    return pieces


def _bounds(piece: Spans) -> tuple[int, int]:
    return piece[0][0], piece[-1][1]


def _first_of(pieces: list[Spans]) -> list[Spans]:
    """Return the first pieces, as many as are requested together."""
    first = pieces[:_TOGETHER_PIECES]
    sizes = accumulate(stop - start for start, stop in map(_bounds, first))
    return first[: bisect([*sizes], _TOGETHER_BYTES)]
