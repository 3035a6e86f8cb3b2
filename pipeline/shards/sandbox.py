"""Damaged files that hang or crash the libraries that read them are first read in another process.

No exception ends an endless loop in C, nor a segmentation fault. So a file that is not known to be
sound is first read where that does no harm.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.shards.format import DamagedShard
from pipeline.shards.shard_file import ShardFile

# What a process may take to start, read a few columns and end.
SECONDS = 60.0
# Any disk is faster, so that only an endless loop is taken for one.
_BYTES_PER_SECOND = 5e6


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
        raise DamagedShard(f"{path} is {text}; copy it again, or have it made again")


def find_crashing_files(paths: Sequence[Path], features: bool) -> dict[Path, str]:
    """Return the files that hang or crash HDF5, and what each of them does.

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
    fault = run_isolated(__name__, arguments, SECONDS, size)
    if fault is None:
        return {}
    if len(paths) == 1:
        return {paths[0]: f"damaged: HDF5 {fault}"}
    found: dict[Path, str] = {}
    for path in paths:
        found |= find_crashing_files([path], features)
    return found


def run_isolated(module: str, arguments: Sequence[str], seconds: float, size: int) -> str | None:
    """Run `python -m module arguments`; return how it hung or crashed, None if it did not.

    A process that merely ends with an error did neither.

    Parameters
    ----------
    module, arguments : what to run.
    seconds : that it may take to start and end.
    size : bytes that it reads in between.
    """
    seconds += size / _BYTES_PER_SECOND
    root = str(Path(__file__).resolve().parents[2])
    try:
        ended = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | {"PYTHONPATH": root},
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not come to an end within {seconds:.0f} s of opening it"
    return f"crashed on opening it (signal {-ended.returncode})" if ended.returncode < 0 else None


def _main() -> None:
    """Read the files named in the arguments, with all features if the last says so."""
    features = sys.argv[-1] == "features"
    for path in sys.argv[1 : len(sys.argv) - features]:
        with suppress(DamagedShard):
            shard = ShardFile(path)
            for rows in shard.spans() if features else ():
                with suppress(DamagedShard):
                    shard.stored(rows)


if __name__ == "__main__":
    _main()
