"""Shards that hang or crash HDF5 are tried in another process before this one opens them.

A shard of a finished set is trusted unless it was changed after its `index.json` was written: what
writes an index has read every byte of the shards that it names. A copy that keeps no modification
times, or a damaged file, is tried first, like every shard without an index.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.guard import crashes_of
from pipeline.shards.format import DamagedShard
from pipeline.shards.reader import ShardFile


def require_unbroken(paths: Sequence[Path], features: bool) -> None:
    """Check that files can be opened in this process.

    Parameters
    ----------
    paths, features : see `find_crashing_files`.

    Raises
    ------
    DamagedShard
        One hangs or crashes HDF5.
    """
    if broken := find_crashing_files(paths, features):
        path, text = next(iter(broken.items()))
        raise DamagedShard(f"{path} is {text}; copy it again, or have it recomputed")


def find_crashing_files(paths: Sequence[Path], features: bool) -> dict[Path, str]:
    """Return the files that hang or crash HDF5, and what each of them does.

    Files that are merely refused, like any other damaged file, are not among them.

    Parameters
    ----------
    paths : existing HDF5 files.
    features : read all features too, not just the rest.
    """
    files = [(path, path.stat().st_size if features else 0) for path in paths]
    crashes = crashes_of(_read_all, files, features)
    return {path: f"damaged: HDF5 {reason}" for path, reason in crashes.items()}


def changed_since(index: Path, paths: Sequence[Path]) -> list[Path]:
    """Return the existing files that were changed after their index was written."""
    written = index.stat().st_mtime_ns
    return [path for path in paths if path.is_file() and path.stat().st_mtime_ns > written]


def _read_all(path: Path, features: bool) -> None:
    with suppress(DamagedShard):
        shard = ShardFile(path)
        for rows in shard.spans() if features else ():
            with suppress(DamagedShard):
                shard.stored(rows)
