"""Whether HDF5 survives a file: damaged metadata can hang or crash the library itself.

One altered byte in an HDF5 2.0 global heap is enough for an endless loop in C, which no
exception ends. So a file that is not known to be sound is first opened in a process of its own.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.shards.apart import bad_end
from pipeline.shards.file import ShardFile
from pipeline.shards.format import DamagedShard

SECONDS = 60.0


def breaking(paths: Sequence[Path], features: bool) -> dict[Path, str]:
    """Return the files that hang or crash HDF5, and what each one does.

    Files that are merely refused, like any other damaged file, are not among them.

    Parameters
    ----------
    paths : HDF5 files that are there.
    features : read all features too, not just the rest.
    """
    if not paths:
        return {}
    arguments = [str(path.absolute()) for path in paths] + ["features"] * features
    size = sum(path.stat().st_size for path in paths) if features else 0
    fault = bad_end(__name__, arguments, SECONDS, size)
    if fault is None:
        return {}
    if len(paths) == 1:
        return {paths[0]: f"damaged: HDF5 {fault}"}
    return {path: text for one in paths for path, text in breaking([one], features).items()}


def require_unbroken(paths: Sequence[Path], features: bool) -> None:
    """Check that files can be opened in this process.

    Parameters
    ----------
    paths, features : see `breaking`.

    Raises
    ------
    DamagedShard
        One hangs or crashes HDF5.
    """
    if broken := breaking(paths, features):
        path, text = next(iter(broken.items()))
        raise DamagedShard(f"{path} is {text}; copy it again, or have it made again")


def _main() -> None:
    features = sys.argv[-1] == "features"
    for path in sys.argv[1 : len(sys.argv) - features]:
        with suppress(DamagedShard):
            shard = ShardFile(Path(path))
            for rows in shard.spans() if features else ():
                with suppress(DamagedShard):
                    shard.stored(rows)


if __name__ == "__main__":
    _main()
