"""Random batches by id from feature shards, against h5py's fancy indexing of the same rows.

Run as `python bench/reading.py [ROWS]`; batches of 16 rows (7, 7, 2048) float16, 201 kB each,
from the page cache. Prints rows per second and ratios, and fails if two ways return different rows.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import FeatureHeader, RowBlock

SHAPE, BATCH = (7, 7, 2048), 16


def write(folder: Path, rows: int) -> FeatureSet:
    """Write a set of `rows` random rows, with three quarters of the values zero, in two shards."""
    header = FeatureHeader(
        {"name": "random"}, "none", "0" * 64, "row, cell_y, cell_x, channel", "bench", SHAPE,
        "float16", "bench",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    ids = [f"{row:06d}.jpg" for row in range(rows)]
    with ShardBuild(folder, header, ids, -(-rows // 2)) as build:
        for span in build.pending():
            for part in span.batches(BATCH):
                values = np.maximum(rng.standard_normal((len(part), *SHAPE)) - 0.67, 0)
                status = np.zeros(len(part), np.uint8)
                block = RowBlock(values.astype(np.float16), status, ("",) * len(part))
                build.append(part.start, block)
        build.publish()
    return FeatureSet(folder)


def write_chunked(features: FeatureSet, path: Path) -> None:
    """Write the same rows as one dataset with one chunk per row, a common layout."""
    with h5py.File(path, "w") as file:
        shape = (len(features), *SHAPE)
        dataset = file.create_dataset("features", shape, np.float16, chunks=(1, *SHAPE))
        row = 0
        for block in features.blocks(features.ids):
            dataset[row : row + len(block)] = block.features
            row += len(block)


def write_contiguous(features: FeatureSet, path: Path) -> None:
    """Write the same rows as one contiguous dataset."""
    with h5py.File(path, "w") as file:
        file["features"] = features.read(features.ids)


def rate(read: Callable[[np.ndarray], np.ndarray], batches: list[np.ndarray]) -> float:
    """Return rows per second over all batches."""
    started = time.perf_counter()
    for batch in batches:
        read(batch)
    return len(batches) * BATCH / (time.perf_counter() - started)


def main() -> None:
    """Time all ways alternately in one run, and print the best of five for each."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    rng = np.random.default_rng(1)
    batches = [np.sort(rng.choice(rows, BATCH, replace=False)) for _ in range(30)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        features = write(folder / "set", rows)
        write_chunked(features, folder / "chunked.h5")
        write_contiguous(features, folder / "contiguous.h5")
        with (
            h5py.File(folder / "chunked.h5") as chunked,
            h5py.File(folder / "contiguous.h5") as contiguous,
        ):
            ids = features.ids
            ways: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
                "FeatureSet.read": (lambda b: features.read([ids[r] for r in b]), 30),
                "h5py, contiguous": (lambda b: contiguous["features"][b], 30),
                "h5py, chunk per row": (lambda b: chunked["features"][b], 3),
            }
            # Each row's CRC-32 is checked when it is read first; that is timed apart.
            fresh = FeatureSet(folder / "set")
            once = rng.permutation(rows)[: rows - rows % BATCH].reshape(-1, BATCH)
            first = rate(lambda b: fresh.read([ids[r] for r in b]), list(once))
            best = dict.fromkeys(ways, 0.0)
            for _ in range(5):
                for way, (read, count) in ways.items():
                    best[way] = max(best[way], rate(read, batches[:count]))
            same = all(
                np.array_equal(read(batches[0]), features.read([ids[r] for r in batches[0]]))
                for read, _ in ways.values()
            )
    ours = best["FeatureSet.read"]
    print(f"{rows} rows {SHAPE} float16, random batches of {BATCH}, rows per second")
    print(f"{'FeatureSet.read, first time':30} {first:9.0f}")
    for way, speed in best.items():
        print(f"{way:30} {speed:9.0f}   FeatureSet / this = {ours / speed:.1f}")
    if not same:
        sys.exit("the ways of reading differ")


if __name__ == "__main__":
    main()
