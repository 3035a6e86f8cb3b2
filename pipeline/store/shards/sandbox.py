"""Isolation of untrusted shards: files that may hang or crash HDF5 are first opened in a child.

A shard of a finished set is trusted unless it was modified after `index.json` was written, since
writing an index reads every byte of its shards. Copies with new modification times, corrupt files
and shards without an index are first opened in a child process.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.store.guard import crashes_of
from pipeline.store.shards.format import DamagedShard
from pipeline.store.shards.reader import ShardFile


def require_unbroken(paths: Sequence[Path], features: bool) -> None:
    """Raise `DamagedShard` if a file hangs or crashes HDF5; as `find_crashing_files`."""
    if broken := find_crashing_files(paths, features):
        path, text = next(iter(broken.items()))
        raise DamagedShard(f"{path} is {text}; copy it again, or recompute it")


def find_crashing_files(paths: Sequence[Path], features: bool) -> dict[Path, str]:
    """Return the files that hang or crash HDF5, with a description of the failure."""
    # Files that HDF5 merely rejects, as other corrupt ones, are not among them. With `features`,
    # all rows are read too.
    files = [(path, path.stat().st_size if features else 0) for path in paths]
    crashes = crashes_of(_read_all, files, features)
    return {path: f"damaged: HDF5 {reason}" for path, reason in crashes.items()}


def changed_since(index: Path, paths: Sequence[Path]) -> list[Path]:
    """Return the existing files that were modified after their index was written."""
    written = index.stat().st_mtime_ns
    return [path for path in paths if path.is_file() and path.stat().st_mtime_ns > written]


def _read_all(path: Path, features: bool) -> None:
    with suppress(DamagedShard):
        shard = ShardFile(path)
        for rows in shard.spans() if features else ():
            with suppress(DamagedShard):
                shard.stored(rows)
