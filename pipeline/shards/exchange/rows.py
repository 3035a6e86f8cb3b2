"""Single rows of remote shards: first all but the features, then the features of some rows."""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np

from pipeline.progress import Progress
from pipeline.shards.exchange.contents import SharedShard, Spans, blocks_of, feature_spans
from pipeline.shards.exchange.download import (
    COPIES,
    DamagedCopy,
    Meter,
    bytes_moved_for,
    fetch_spans,
)
from pipeline.shards.exchange.remote import Remote
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.shard_file import ShardFile

_CHECKED_BYTES = 1 << 24


def fetch_hollow(
    remote: Remote, path: Path, shard: SharedShard, meter: Meter, show: Callable[[int], None]
) -> None:
    """Fetch a shard without its features: a file of its size, with holes where they belong.

    It has all ids, states and checksums of rows.

    Parameters
    ----------
    remote : has it. path : where it shall lie; whole or not at all.
    shard : what is told of it.
    meter, show : see `fetch_spans`.

    Raises
    ------
    DamagedCopy
        What came does not have the SHA-256 of the shard's rest.
    RemoteError
        The other side does not answer, or gives no single bytes.
    """
    part = path.with_name(f"{path.name}.part")
    found: list[str] = []
    for _ in range(COPIES):
        with part.open("wb") as stream:
            stream.truncate(shard.size)
        fetch_spans(remote, path.name, part, shard.rest, meter, show)
        digest = hashlib.sha256()
        for block in blocks_of(part, shard.rest):
            digest.update(block)
        if digest.hexdigest() == shard.rest_sha256:
            part.replace(path)
            return
        found.append(digest.hexdigest())
    part.unlink()
    raise DamagedCopy(
        f"{remote.shown}/{path.name}: all of it but the features came {COPIES} times, and not with "
        f"the SHA-256 {shard.rest_sha256}: found {', '.join(dict.fromkeys(found))}; the copy there "
        "is damaged or of another set: tell who publishes it, or pull from another place"
    )


def fetch_rows(
    remote: Remote, features: FeatureSet, ids: Sequence[str], meter: Meter, progress: Progress
) -> None:
    """Fill the holes of hollow shards that belong to some rows, each checked by its CRC-32.

    Rows that are there already are left alone.

    Parameters
    ----------
    remote : has the shards.
    features : the set of all hollow shards.
    ids : of the rows.
    meter : counts what comes.
    progress : gets bytes done and in all.

    Raises
    ------
    DamagedCopy
        Rows came, several times, with other bytes than those of their CRC-32.
    RemoteError
        The other side does not answer, or gives no single bytes.
    """
    wanted = dict(_rows_by_shard(features, ids))
    done = 0
    for attempt in range(COPIES):
        waiting: list[tuple[Path, Spans]] = []
        for path, rows in wanted.items():
            absent = _absent(path, rows)
            if absent.size and attempt:
                meter.log(f"{path.name}: {absent.size} rows are not what was pushed")
            wanted[path] = absent
            if absent.size:
                waiting.append((path, feature_spans(path, absent)))
        total = done + sum(bytes_moved_for(spans) for _, spans in waiting)
        for path, spans in waiting:
            before = done

            def show(moved: int, before: int = before, total: int = total) -> None:
                progress(before + moved, total, 0)

            fetch_spans(remote, path.name, path, spans, meter, show)
            done += bytes_moved_for(spans)
    for path, rows in wanted.items():
        if (wrong := _absent(path, rows)).size:
            shard = ShardFile(path)
            raise DamagedCopy(
                f"{remote.shown}/{path.name}: {wrong.size} rows came {COPIES} times with other "
                f"bytes than those of their CRC-32, first {[shard.ids[row] for row in wrong[:5]]}; "
                "the copy there is damaged: tell who publishes it, or pull from another place"
            )


def bytes_of_rows(features: FeatureSet, ids: Sequence[str]) -> int:
    """Return how many bytes are moved for some rows of hollow shards that are not there yet."""
    return sum(
        bytes_moved_for(feature_spans(path, absent))
        for path, rows in _rows_by_shard(features, ids)
        if (absent := _absent(path, rows)).size
    )


def _rows_by_shard(features: FeatureSet, ids: Sequence[str]) -> Iterator[tuple[Path, np.ndarray]]:
    """Yield the shards that have some of the rows, and their ascending row numbers there."""
    rows = np.unique(features.rows_of(ids))
    for entry in features.index.shards:
        here = rows[(rows >= entry.first_row) & (rows < entry.first_row + entry.rows)]
        if here.size:
            yield features.folder / entry.file, here - entry.first_row


def _absent(path: Path, rows: np.ndarray) -> np.ndarray:
    """Return those of the rows whose bytes are not those of their CRC-32."""
    shard = ShardFile(path)
    if shard.compressed:
        with h5py.File(path, "r") as file:
            crc32 = [_crc32_of(file["features"], row) for row in rows.tolist()]
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
