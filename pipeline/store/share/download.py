"""Downloads: resumable, bounded in size, and verified."""

import os
from collections.abc import Callable
from pathlib import Path

from pipeline.store.hashing import sha256_of_file
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retried import read_spans
from pipeline.store.objects.retry import ATTEMPTS, Backoff, RemoteError
from pipeline.store.shards.format import DamagedShard
from pipeline.store.share.meter import Meter
from pipeline.store.share.spans import Spans

COPIES = 2
# Gaps up to this many bytes between requested spans are fetched too: separate requests are slower.
_GAP = 1 << 14
_PIECE = 1 << 18
# Limit of concurrently requested pieces.
_TOGETHER_BYTES = 1 << 22


def fetch_file(
    remote: Remote, path: Path, sha256: str, size: int | None, most: int, meter: Meter
) -> None:
    """Fetch a file as `NAME.part`, resumed if possible, and rename it once it is verified."""

    def fetch(part: Path) -> str:
        _fetch_part(remote, path.name, part, size, most, meter)
        return sha256_of_file(part)

    store_verified(fetch, path, sha256, f"{remote.shown}/{path.name}", meter)


def store_verified(
    fetch: Callable[[Path], str], path: Path, sha256: str, what: str, meter: Meter
) -> None:
    """Have `fetch` complete `NAME.part` until its SHA-256 is right, and rename it to `path`."""
    part = path.with_name(f"{path.name}.part")
    digests: list[str] = []
    while len(digests) < COPIES:
        digest = fetch(part)
        if digest == sha256:
            part.replace(path)
            return
        part.unlink()
        digests.append(digest)
        meter.log(f"{path.name} was received with the SHA-256 {digest}, expected {sha256}")
    raise DamagedShard(
        f"{what} was received {COPIES} times without the SHA-256 {sha256}: found "
        f"{', '.join(dict.fromkeys(digests))}; the remote copy is corrupt or of another set: "
        "notify its publisher, or pull from another URL"
    )


def _fetch_part(
    remote: Remote, name: str, part: Path, size: int | None, most: int, meter: Meter
) -> None:
    """Append the missing bytes to a part; at most `size`, or `most` if the size is unknown."""
    end = most if size is None else size
    backoff, starts = Backoff(meter.log), 1
    with part.open("ab") as stream:
        # A part of an earlier run is trusted until the end: only the whole file has a checksum.
        if stream.tell() > end:
            stream.truncate(0)
            stream.seek(0)
        meter.exists(stream.tell())

        def write(block: bytes) -> bool:
            meter.add(stream.write(block[: end - stream.tell()]))
            backoff.progressed()
            return stream.tell() < end

        while stream.tell() < end:
            try:
                remote.read(name, write, stream.tell())
                if size is None:  # a response without an error is complete
                    break
                if stream.tell() < end:
                    raise RemoteError(
                        f"{remote.shown}/{name} ended after {stream.tell():,} of {end:,} bytes",
                        "transient",
                    )
            except RemoteError as error:
                if error.cause != "no ranges":
                    stream.flush()
                    backoff.failed(error)
                    continue
                # Such a server cannot resume, so that each interruption costs a whole download.
                starts += 1
                if starts > ATTEMPTS:
                    raise RemoteError(
                        f"{error}, and was interrupted {ATTEMPTS} times; pull from another URL"
                    ) from error
                meter.log(f"{error}; {name} is fetched again from its beginning")
                stream.truncate(0)
                stream.seek(0)
        # The caller renames the part; after a power loss the new name must not have old bytes.
        stream.flush()
        os.fsync(stream.fileno())


def fetch_spans(remote: Remote, name: str, path: Path, spans: Spans, meter: Meter) -> None:
    """Fetch byte ranges of a file concurrently into the same ranges of a local file.

    Nothing is verified here. Ranges close to each other are fetched in one request; only the
    requested bytes are written, since bytes between them may be verified already.
    """
    pieces = {_bounds(piece): piece for piece in _pieces(spans)}
    with path.open("rb+", buffering=0) as stream:
        for bounds, data in read_spans(remote, name, pieces, _TOGETHER_BYTES, meter.log):
            for start, stop in pieces[bounds]:
                stream.seek(start)
                stream.write(memoryview(data)[start - bounds[0] : stop - bounds[0]])
            meter.add(len(data))
        os.fsync(stream.fileno())


def bytes_moved_for(spans: Spans) -> int:
    """Return how many bytes `fetch_spans` transfers."""
    return sum(stop - start for start, stop in map(_bounds, _pieces(spans)))


def _pieces(spans: Spans) -> list[Spans]:
    """Return spans grouped by request; long ones are split."""
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
