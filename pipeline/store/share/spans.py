"""Byte ranges of the features in a shard, and the SHA-256 of byte ranges."""

import hashlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline.store.shards.layout import FEATURES

_BLOCK = 1 << 20

Spans = list[tuple[int, int]]
"""Start and stop of byte ranges, ascending and disjoint."""


def feature_spans(path: Path, rows: np.ndarray | None = None) -> Spans:
    """Return the byte ranges of the features of `rows` (n,) int, or of all, in a (sparse) shard."""
    spans: Spans = []
    with h5py.File(path, "r") as file:
        features = file[FEATURES]
        requested = np.full(len(features), rows is None)
        requested[slice(0) if rows is None else rows] = True
        if features.chunks is None:
            size = features.id.get_storage_size() // len(features)
            first = features.id.get_offset()
            if first is not None:  # None: storage was never allocated
                starts = first + size * requested.nonzero()[0]
                spans = [(start, start + size) for start in starts.tolist()]
        else:
            step = features.chunks[0]

            def visit(chunk: Any) -> None:
                row = chunk.chunk_offset[0]
                if requested[row : row + step].any():
                    spans.append((chunk.byte_offset, chunk.byte_offset + chunk.size))

            features.id.chunk_iter(visit)
    joined: Spans = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            start, stop = joined[-1][0], max(stop, joined.pop()[1])
        joined.append((start, stop))
    return joined


def sha256_of_spans(path: Path, spans: Spans) -> str:
    """Return the SHA-256 of the bytes of a file in given ranges, in order."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for start, stop in spans:
            stream.seek(start)
            while start < stop and (block := stream.read(min(_BLOCK, stop - start))):
                digest.update(block)
                start += len(block)
    return digest.hexdigest()
