"""Time to open finished feature sets, against plain h5py on the same files.

Run as `python bench/opening.py [ROWS]`; sets of 1 and 32 shards with ROWS (default 1000) rows of 16
numbers, so that the rows themselves cost nothing. Prints the minimum milliseconds of 15 alternating
rounds: to open every file with h5py; to read all columns except the features with h5py; to open the
set; and to verify its structure, for which a child process opens the shards first
(`pipeline.store.guard`).
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.verify import verify

DIM, TURNS = 16, 15


def write(folder: Path, shards: int, rows: int) -> None:
    """Write a set of random rows with `rows` in each shard."""
    header = FeatureHeader(
        {"name": "random"}, "none", "0" * 64, "row, channel", "bench", (DIM,), "float32", "bench"
    )
    rng = np.random.default_rng(0)
    ids = [f"images/{row:08d}.jpg" for row in range(shards * rows)]
    with ShardBuild(folder, header, ids, rows) as build:
        for span in build.pending():
            values = rng.standard_normal((len(span), DIM), np.float32)
            status = np.zeros(len(span), np.uint8)
            build.append(span.start, RowBlock(values, status, ("",) * len(span)))
        build.publish()


def open_files(folder: Path) -> None:
    """Open each shard with h5py and read the shape of its features."""
    for path in sorted(folder.glob("*.h5")):
        with h5py.File(path) as file:
            _ = file["features"].shape


def read_columns(folder: Path) -> None:
    """Read the attributes and all columns except the features of each shard with h5py."""
    for path in sorted(folder.glob("*.h5")):
        with h5py.File(path) as file:
            _ = dict(file.attrs), file["features"].shape
            for column in file.values():
                if column.name != "/features":
                    _ = (column.asstr() if column.dtype == object else column)[()]


def milliseconds(look: Callable[[Path], object], folder: Path) -> float:
    """Return the duration of one call."""
    started = time.perf_counter()
    look(folder)
    return (time.perf_counter() - started) * 1e3


def least(
    ways: Mapping[str, Callable[[Path], object]], sets: dict[int, Path]
) -> dict[tuple[int, str], float]:
    """Return the minimum milliseconds of each way for each set, measured alternately."""
    best: dict[tuple[int, str], float] = {}
    for _ in range(TURNS):
        for shards, folder in sets.items():
            for way, look in ways.items():
                taken = milliseconds(look, folder)
                best[shards, way] = min(taken, best.get((shards, way), taken))
    return best


def main() -> None:
    """Time all ways alternately, and print the best of each."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as name:
        sets = {shards: Path(name) / str(shards) for shards in (1, 32)}
        for shards, folder in sets.items():
            write(folder, shards, rows)
        ways: dict[str, Callable[[Path], object]] = {
            "h5py, open": open_files,
            "h5py, read": read_columns,
            "FeatureSet": FeatureSet,
            "verify": partial(verify, quick=True),
        }
        best = least(ways, sets)
    print(f"milliseconds to open a set of shards of {rows} rows ({DIM},) float32")
    print("shards " + "".join(f"{way:>12}" for way in ways))
    for shards in sets:
        print(f"{shards:6} " + "".join(f"{best[shards, way]:12.1f}" for way in ways))


if __name__ == "__main__":
    main()
