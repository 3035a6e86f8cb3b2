"""What has changed since rows were made: the contents of their files."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pipeline.images.decode import source_crc32
from pipeline.images.region import Region, Source, photo_of
from pipeline.progress import Progress, no_progress
from pipeline.shards.format import OK
from pipeline.shards.resume.feature_build import ShardBuild


def changed_rows(
    build: ShardBuild,
    paths: Sequence[Source],
    readers: int,
    progress: Progress = no_progress,
    crc32_of: Callable[[Path], int] = source_crc32,
    unchanged: np.ndarray | None = None,
) -> tuple[list[int], list[int]]:
    """Return the finished rows whose files have changed since, and those whose files have gone.

    Every file of a finished row is read, which takes seconds where making the features took
    hours. Rows of unknown origin, such as imported ones, count as unchanged. Rows whose file has
    gone are no reason to make anything again: a disk that is not there must not cost features.

    Parameters
    ----------
    build : an entered build.
    paths : the file of each row, or a region of it.
    readers : threads that read.
    progress : called now and then.
    crc32_of : returns the CRC-32 of a file's bytes, 0 where there is none.
    unchanged : (rows,) bool, rows whose files need not be read; None: all are.
    """
    changed: list[int] = []
    gone: list[int] = []
    with ThreadPoolExecutor(readers, thread_name_prefix="read") as pool:
        for span, status, known in build.finished():
            looked_at = np.arange(span.start, span.stop)
            if unchanged is not None:
                looked_at = looked_at[~unchanged[span.start : span.stop]]
            sources = [paths[row] for row in looked_at.tolist()]
            files = list(dict.fromkeys(map(photo_of, sources)))
            crc32 = dict(zip(files, pool.map(crc32_of, files), strict=True))
            for row, source in zip(looked_at.tolist(), sources, strict=True):
                new = crc32[photo_of(source)]
                if isinstance(source, Region):
                    new = source.source_crc32(new)
                old, code = int(known[row - span.start]), status[row - span.start]
                if new and old != new and (old or code != OK):
                    changed.append(row)
                elif old and not new:
                    gone.append(row)
            progress(span.stop, len(paths), 0)
    return changed, gone


def failed_rows(build: ShardBuild) -> list[int]:
    """Return the finished rows that have no features."""
    return [
        span.start + int(position)
        for span, status, _ in build.finished()
        for position in np.flatnonzero(status != OK)
    ]
