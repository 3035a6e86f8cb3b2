"""Single rows of remote shards, collected in sparse files with the layout of the shards.

All bytes of a shard except its features are fetched and verified first, so that HDF5 never parses
unverified bytes; then the features of single rows concurrently, each verified by its CRC-32.
`FeatureSet` reads a sparse file like any shard.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from pipeline.store.objects.remote import Remote
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import DamagedShard
from pipeline.store.shards.layout import FEATURES
from pipeline.store.shards.reader import ShardFile
from pipeline.store.share.contents import SharedShard
from pipeline.store.share.download import COPIES, bytes_moved_for, fetch_spans, store_verified
from pipeline.store.share.meter import Meter
from pipeline.store.share.spans import feature_spans, sha256_of_spans

_ROWS = 64

MissingFeatures = dict[Path, np.ndarray]
"""Ascending row numbers (n,) int64 by sparse shard."""


def fetch_sparse(remote: Remote, path: Path, shard: SharedShard, meter: Meter) -> None:
    """Fetch a shard without its features, as a sparse file of the full size."""

    def fetch(part: Path) -> str:
        with part.open("wb") as stream:
            stream.truncate(shard.size)
        fetch_spans(remote, path.name, part, shard.rest, meter)
        return sha256_of_spans(part, shard.rest)

    what = f"{remote.shown}/{path.name} without its features"
    store_verified(fetch, path, shard.rest_sha256, what, meter)


def is_valid_sparse(path: Path, shard: SharedShard) -> bool:
    """Return whether a valid sparse shard exists, with or without features."""
    return (
        path.is_file()
        and path.stat().st_size == shard.size
        and sha256_of_spans(path, shard.rest) == shard.rest_sha256
    )


def missing_features(features: FeatureSet, ids: Sequence[str]) -> MissingFeatures:
    """Return the requested rows whose features are missing in sparse shards."""
    rows = np.unique(features.rows_of(ids))
    by_shard: MissingFeatures = {}
    for entry in features.index.shards:
        here = rows[(rows >= entry.first_row) & (rows < entry.first_row + entry.rows)]
        path = features.folder / entry.file
        if (missing := _missing(path, here - entry.first_row)).size:
            by_shard[path] = missing
    return by_shard


def bytes_moved_for_rows(missing: MissingFeatures) -> int:
    """Return how many bytes a fetch of rows transfers."""
    return sum(bytes_moved_for(feature_spans(path, rows)) for path, rows in missing.items())


def fetch_rows(remote: Remote, missing: MissingFeatures, meter: Meter) -> None:
    """Fetch the features of rows into sparse shards, each verified by its CRC-32."""
    for _ in range(COPIES):
        for path, rows in missing.items():
            fetch_spans(remote, path.name, path, feature_spans(path, rows), meter)
        remaining = {path: _missing(path, rows) for path, rows in missing.items()}
        missing = {path: rows for path, rows in remaining.items() if rows.size}
        for path, rows in missing.items():
            meter.log(f"{path.name}: {rows.size} rows were received corrupt")
    if missing:
        path, rows = next(iter(missing.items()))
        ids = ShardFile(path).ids
        raise DamagedShard(
            f"{remote.shown}/{path.name}: {rows.size} rows were received {COPIES} times with a "
            f"wrong CRC-32, first {[ids[row] for row in rows[:5]]}; the remote copy is corrupt: "
            "notify its publisher, or pull from another URL"
        )


def _missing(path: Path, rows: np.ndarray) -> np.ndarray:
    """Return the rows without a matching CRC-32."""
    shard = ShardFile(path)
    if shard.compressed:
        # Row by row: a chunk of missing bytes fails to decompress, and must not hide the others.
        with h5py.File(path, "r") as file:
            crc32 = [_crc32_of(file[FEATURES], row) for row in rows.tolist()]
    else:
        blocks = (rows[at : at + _ROWS] for at in range(0, len(rows), _ROWS))
        crc32 = [zlib.crc32(row) for block in blocks for row in shard.stored(block)]
    return rows[np.array(crc32, np.int64) != shard.crc32[rows]]


def _crc32_of(features: h5py.Dataset, row: int) -> int:
    """Return the CRC-32 of a row's bytes; -1 if its chunk is unreadable."""
    try:
        return zlib.crc32(features[row])
    except (OSError, RuntimeError):
        return -1
