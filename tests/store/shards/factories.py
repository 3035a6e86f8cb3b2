"""A small feature set, and a process that kills itself while it builds one.

As a program, factories.py OUT ROWS builds one.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.store.builder import unfinished_shard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.format import OK, UNREADABLE, FeatureHeader, RowBlock
from pipeline.store.shards.index import FeatureIndex

ROWS_PER_SHARD = 10
SHAPE = (2, 3)


def header(**changes: object) -> FeatureHeader:
    """Return a header of float32 rows (2, 3)."""
    metadata: dict[str, object] = {
        "recipe": {"name": "made", "scale": 1},
        "weights": "none",
        "weights_sha256": "0" * 64,
        "axes": "row, y, x",
        "dataset": "made",
        "row_shape": SHAPE,
        "dtype": "float32",
        "created_by": "tests",
    }
    return FeatureHeader(**{**metadata, **changes})  # type: ignore[arg-type]


def ids(rows: int) -> list[str]:
    """Return ids that are not in alphabetical order and not ASCII only."""
    return [f"bild/é{(7 * row) % rows}-{row}.jpg" for row in range(rows)]


def updated(rows: int) -> list[str]:
    """Return the ids less the first six, in another order, with four others among them."""
    kept = ids(rows)[6:]
    return [*kept[8:], "new-40.jpg", *kept[:8], "new-41.jpg", "new-42.jpg", "new-43.jpg"]


def feature(row: int) -> np.ndarray:
    """Return the features of a row."""
    return np.full(SHAPE, row, np.float32) + np.arange(6, dtype=np.float32).reshape(SHAPE) / 8


def block(start: int, stop: int, failed: tuple[int, ...] = ()) -> RowBlock:
    """Return finished rows, some of them failed; row n was made from a source of CRC-32 n + 1."""
    return block_of(range(start, stop), failed)


def block_of(rows: Sequence[int], failed: tuple[int, ...] = ()) -> RowBlock:
    """Return finished rows by number."""
    return RowBlock(
        np.stack([feature(row) for row in rows]),
        np.array([UNREADABLE if row in failed else OK for row in rows], np.uint8),
        tuple("not an image" if row in failed else "" for row in rows),
        np.array([0 if row in failed else row + 1 for row in rows], np.uint32),
    )


def feed(
    work: ShardBuild, failed: tuple[int, ...], batch: int = 4, stop_after: int | None = None
) -> None:
    """Append all pending rows; an id ends with the number that gives its features."""
    batches = [b for span in work.pending() for b in span.batches(batch)]
    for number, rows in enumerate(batches):
        if number == stop_after:
            raise KeyboardInterrupt
        numbers = [int(row_id[:-4].split("-")[1]) for row_id in work.ids[rows.start : rows.stop]]
        work.append(rows.start, block_of(numbers, failed))


def build(
    out: Path,
    rows: int | list[str],
    batch: int = 4,
    stop_after: int | None = None,
    failed: tuple[int, ...] = (3, 17),
    redo: bool = False,
    add: bool = False,
    update: bool = False,
    rows_per_shard: int | None = ROWS_PER_SHARD,
    compress: bool = False,
    **changes: object,
) -> FeatureIndex:
    """Build the set of a number of rows, or of these ids.

    KeyboardInterrupt is raised after `stop_after` batches; `redo` has failed rows made again.
    """
    asked = ids(rows) if isinstance(rows, int) else rows
    about = header(**changes)
    with ShardBuild(out, about, asked, rows_per_shard, compress, None, add, update) as work:
        if redo:
            for rows_of, status, _ in list(work.existing()):
                work.redo(rows_of[status != 0])
        feed(work, failed, batch, stop_after)
        return work.publish()


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder, less the lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".gitignore" and path.suffix != ".lock"
    }


def build_until(out: Path, rows: int, function: str, fatal: int, task: str = "") -> None:
    """Build the set, and send this process SIGKILL just before a call of a function of `os`.

    `fatal` is the number of the call, from 0. `task` is `add`, `compress`, `update` to the ids of
    `updated`, or `redo`: no row fails, and failed ones are made again.
    """
    unfinished_shard.FLUSH_SECONDS = 0.0
    name = function.removeprefix("os.")
    original = getattr(os, name)
    calls = 0

    def counted(*arguments: object, **options: object) -> object:
        nonlocal calls
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return original(*arguments, **options)

    setattr(os, name, counted)
    failed = () if task == "redo" else (3, 17)
    add, compress = task == "add", task == "compress"
    update = task == "update"
    asked = updated(rows) if update else rows
    given = {"add": add, "update": update, "compress": compress}
    build(out, asked, failed=failed, redo=task == "redo", **given)


if __name__ == "__main__":
    build(Path(sys.argv[1]), int(sys.argv[2]))
