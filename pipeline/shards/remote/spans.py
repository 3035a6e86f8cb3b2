"""Where the stored features of rows lie in a shard's file, and the SHA-256 of runs of its bytes."""

import hashlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline.shards.layout import FEATURES

_BLOCK = 1 << 20

Spans = list[tuple[int, int]]
"""Start and stop of runs of bytes or rows, ascending and apart from each other."""


def feature_spans(path: Path, rows: np.ndarray | None = None) -> Spans:
    """Return where the stored features of some rows lie in a shard.

    Parameters
    ----------
    path : of the shard; its features need not be there.
    rows : (n,) int row numbers. None: all.
    """
    found: Spans = []
    with h5py.File(path, "r") as file:
        features = file[FEATURES]
        wanted = np.ones(len(features), bool)
        if rows is not None:
            wanted[:] = False
            wanted[rows] = True
        if features.chunks is None:
            size = features.id.get_storage_size() // len(features)
            first = features.id.get_offset()
            if first is not None:  # None: no feature was ever written
                found = [
                    (first + row * size, first + (row + 1) * size)
                    for row in wanted.nonzero()[0].tolist()
                ]
        else:
            step = features.chunks[0]

            def visit(chunk: Any) -> None:
                row = chunk.chunk_offset[0]
                if wanted[row : row + step].any():
                    found.append((chunk.byte_offset, chunk.byte_offset + chunk.size))

            features.id.chunk_iter(visit)
    return _joined(found)


def sha256_of_spans(path: Path, spans: Spans) -> str:
    """Return the SHA-256 of the bytes of a file in some spans, in their order."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for start, stop in spans:
            stream.seek(start)
            while start < stop and (block := stream.read(min(_BLOCK, stop - start))):
                digest.update(block)
                start += len(block)
    return digest.hexdigest()


def _joined(spans: Spans) -> Spans:
    """Return spans in order, joined where nothing lies between them."""
    result: Spans = []
    for start, stop in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(stop, result[-1][1])
        else:
            result.append((start, stop))
    return result
