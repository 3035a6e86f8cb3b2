"""Trial of shards of unknown origin in a child process, since they may hang or crash HDF5.

`verify`, `rebuild_index` and `pull` try shards that no index vouches for, and builds those that
they find in an output; shards that this machine wrote are opened without a trial.
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


def _read_all(path: Path, features: bool) -> None:
    with suppress(DamagedShard):
        shard = ShardFile(path)
        for rows in shard.spans() if features else ():
            with suppress(DamagedShard):
                shard.stored(rows)
