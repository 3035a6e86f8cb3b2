"""Single rows of remote shards: first all but the features, then the features of some rows."""

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np

from pipeline.guard import crashes_of
from pipeline.progress import Progress
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.layout import FEATURES
from pipeline.shards.reader import ShardFile
from pipeline.shards.remote.contents import SharedShard
from pipeline.shards.remote.download import (
    COPIES,
    DamagedCopy,
    Meter,
    bytes_moved_for,
    fetch_spans,
)
from pipeline.shards.remote.remote import ExchangeError, Remote
from pipeline.shards.remote.spans import feature_spans, sha256_of_spans

_CHECKED_BYTES = 1 << 24

AbsentRows = dict[Path, np.ndarray]
"""Ascending row numbers (n,) int64 by hollow shard."""


def fetch_hollow(
    remote: Remote, path: Path, shard: SharedShard, meter: Meter, show: Callable[[int], None]
) -> None:
    """Fetch a shard without its features: a file of its size, with holes where they belong.

    It has all ids, states and checksums of rows.

    Parameters
    ----------
    remote : has it. path : where it shall lie; whole or not at all.
    shard : what is known of it.
    meter, show : see `fetch_spans`.

    Raises
    ------
    DamagedCopy
        What came does not have the SHA-256 of the shard's rest.
    RemoteError
        The other side does not answer, or does not serve ranges of bytes.
    """
    part = path.with_name(f"{path.name}.part")
    found: list[str] = []
    for _ in range(COPIES):
        with part.open("wb") as stream:
            stream.truncate(shard.size)
        fetch_spans(remote, path.name, part, shard.rest, meter, show)
        digest = sha256_of_spans(part, shard.rest)
        if digest == shard.rest_sha256:
            part.replace(path)
            return
        found.append(digest)
    part.unlink()
    raise DamagedCopy(
        f"{remote.shown}/{path.name}: all of it but the features came {COPIES} times, and not with "
        f"the SHA-256 {shard.rest_sha256}: found {', '.join(dict.fromkeys(found))}; the copy there "
        "is damaged or of another set: tell who publishes it, or pull from another place"
    )


def is_sound_hollow(path: Path, shard: SharedShard) -> bool:
    """Return whether a shard without its features, or with some, lies there as it came."""
    return (
        path.is_file()
        and path.stat().st_size == shard.size
        and sha256_of_spans(path, shard.rest) == shard.rest_sha256
    )


def require_places(remote: Remote, paths: Sequence[Path]) -> None:
    """Check, in a process of its own, that hollow shards say where their features lie.

    Raises
    ------
    ExchangeError
        HDF5 hangs or crashes.
    """
    for path, reason in crashes_of(feature_spans, [(path, 0) for path in paths]).items():
        raise ExchangeError(
            f"{remote.shown}/{path.name}: HDF5 {reason} when it was asked where the rows are "
            "stored; tell who publishes the shard"
        )


def absent_rows(features: FeatureSet, ids: Sequence[str]) -> AbsentRows:
    """Return the rows of hollow shards that are asked for and are not there."""
    rows = np.unique(features.rows_of(ids))
    found: AbsentRows = {}
    for entry in features.index.shards:
        here = rows[(rows >= entry.first_row) & (rows < entry.first_row + entry.rows)]
        path = features.folder / entry.file
        if (absent := _absent(path, here - entry.first_row)).size:
            found[path] = absent
    return found


def bytes_moved_for_rows(absent: AbsentRows) -> int:
    """Return how many bytes come for some rows of hollow shards."""
    return sum(bytes_moved_for(feature_spans(path, rows)) for path, rows in absent.items())


def fetch_rows(remote: Remote, absent: AbsentRows, meter: Meter, progress: Progress) -> None:
    """Fill the holes of hollow shards that belong to some rows, each checked by its CRC-32.

    Parameters
    ----------
    remote : has the shards.
    absent : the rows.
    meter : counts what comes.
    progress : gets bytes done and in all.

    Raises
    ------
    DamagedCopy
        Rows came, several times, with other bytes than those of their CRC-32.
    RemoteError
        The other side does not answer, or does not serve ranges of bytes.
    """
    done = 0
    for _ in range(COPIES):
        total = done + bytes_moved_for_rows(absent)
        for path, rows in absent.items():
            spans = feature_spans(path, rows)

            def show(moved: int, done: int = done, total: int = total) -> None:
                progress(done + moved, total, 0)

            fetch_spans(remote, path.name, path, spans, meter, show)
            done += bytes_moved_for(spans)
        found = {path: _absent(path, rows) for path, rows in absent.items()}
        absent = {path: rows for path, rows in found.items() if rows.size}
        for path, rows in absent.items():
            meter.log(f"{path.name}: {rows.size} rows came with other bytes than they should have")
    if absent:
        path, rows = next(iter(absent.items()))
        ids = ShardFile(path).ids
        raise DamagedCopy(
            f"{remote.shown}/{path.name}: {rows.size} rows came {COPIES} times with other bytes "
            f"than those of their CRC-32, first {[ids[row] for row in rows[:5]]}; the copy there "
            "is damaged: tell who publishes it, or pull from another place"
        )


def _absent(path: Path, rows: np.ndarray) -> np.ndarray:
    """Return those of the rows whose bytes are not those of their CRC-32."""
    shard = ShardFile(path)
    if shard.compressed:
        with h5py.File(path, "r") as file:
            crc32 = [_crc32_of(file[FEATURES], row) for row in rows.tolist()]
        return rows[np.array(crc32) != shard.crc32[rows]]
    step = max(1, _CHECKED_BYTES // max(1, int(np.prod(shard.row_shape)) * shard.dtype.itemsize))
    wrong = [
        row
        for start in range(0, len(rows), step)
        for row, stored in zip(
            rows[start : start + step].tolist(),
            shard.stored(rows[start : start + step]),
            strict=True,
        )
        if zlib.crc32(stored) != shard.crc32[row]
    ]
    return np.array(wrong, np.int64)


def _crc32_of(features: h5py.Dataset, row: int) -> int:
    """Return the CRC-32 of a row's bytes, -1 if its chunk cannot be read."""
    try:
        return zlib.crc32(features[row])
    except (OSError, RuntimeError):
        return -1
