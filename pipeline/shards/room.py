"""Whether there is room for the work, and whether its results can be moved from there."""

import shutil
from pathlib import Path

from pipeline.shards.format import ShardError


def require_one_disk(out: Path, work: Path) -> None:
    """Check that folders, there already or not, are on one disk: nothing is renamed across two.

    Raises
    ------
    ShardError
    """
    above_out, above_work = (
        next(p for p in (folder, *folder.parents) if p.exists()) for folder in (out, work)
    )
    if above_out.stat().st_dev != above_work.stat().st_dev:
        raise ShardError(
            f"{out} and {work} lie on different disks; unfinished work lies in {work}, and "
            "finished shards could not be renamed from there to the output: give a folder below "
            f"{out} as output folder, or one on the disk of {above_work}"
        )


def require_space(work: Path, rows: int, row_bytes: int) -> None:
    """Check that `rows` rows of `row_bytes` bytes fit on the disk of the work folder.

    Raises
    ------
    ShardError
    """
    needed, free = rows * row_bytes, shutil.disk_usage(work).free
    if needed > free:
        raise ShardError(
            f"{rows} rows of {row_bytes} bytes need {needed / 1e6:.1f} MB in {work}, and "
            f"{free / 1e6:.1f} MB are free; make room or give another output folder"
        )
