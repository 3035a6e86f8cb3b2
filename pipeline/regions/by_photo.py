"""Region features that are computed a photo at a time, into shards."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.devices import one_core_each
from pipeline.errors import WrongUsage
from pipeline.images.changes import changed_rows
from pipeline.images.decode import Rule
from pipeline.images.region import Region, Source, photo_of
from pipeline.progress import Monitor
from pipeline.shards.format import OK, REFUSED, FeatureHeader, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.shards.resume.feature_build import ShardBuild

_PHOTOS_AHEAD = 2

RowsOf = Callable[[Image.Image, npt.NDArray[np.float64]], npt.NDArray[np.float32]]
"""From a photo and (k, 4) boxes in its pixels to their (k, dim) rows."""


@dataclass(frozen=True)
class ByPhoto:
    """A kind of region features.

    Attributes
    ----------
    header : of the shards.
    rule : by which photos are decoded.
    prepare : returns what computes the rows; called once there is something to compute.
    engine : what computes them, where that changes a bit of them.
    """

    header: FeatureHeader
    rule: Rule
    prepare: Callable[[], RowsOf]
    engine: str = ""


def extract_by_photo(
    sources: Mapping[str, Source],
    out: Path,
    features: ByPhoto,
    monitor: Monitor,
    *,
    rows_per_shard: int | None = None,
    compress: bool = False,
    threads: int | None = None,
) -> FeatureIndex:
    """Compute the features of regions, or what is missing of them.

    A row depends on its photo and its box alone. A photo that fails, or is another than its boxes
    were proposed on, fails all its regions.

    Parameters
    ----------
    sources : row id to its region; regions of a photo stand together.
    out : folder of the shards.
    features : what is computed.
    rows_per_shard, compress : of the shards; None plans the rows.
    threads : photos at once; None: a thread a core.
    monitor : gets log lines and progress.

    Returns
    -------
    FeatureIndex
        Of the finished shards.

    Raises
    ------
    ShardError
        The folder holds rows of another recipe or of other regions, or is being written to.
    ImageReadError
        The system, not a file, is at fault.
    """
    recipe, count = str(features.header.recipe["name"]), threads or len(os.sched_getaffinity(0))
    inputs = [features.engine, [s.box for s in sources.values() if isinstance(s, Region)]]
    started = time.monotonic()
    with ShardBuild(out, features.header, list(sources), rows_per_shard, compress, inputs) as build:
        rows = [sources[row_id] for row_id in build.ids]
        with monitor.progress("checking", "region") as progress:
            build.redo(changed_rows(build, rows, count, progress)[0])
        done, failed = build.rows_done, 0
        computed = len(rows) - done
        if computed:
            with monitor.progress(recipe, "region") as progress:
                for first_row, block in _blocks(build.pending(), rows, features, count):
                    build.append(first_row, block)
                    done += len(block)
                    failed += int((block.status != OK).sum())
                    progress(done, len(rows), failed)
        index = build.publish()
    seconds = time.monotonic() - started
    monitor.log(
        f"{computed} computed in {seconds:.1f} s ({computed / max(seconds, 1e-9):.1f} regions/s), "
        f"{index.failed_rows} failed"
    )
    return index


def _blocks(
    spans: list[Span], rows: list[Source], features: ByPhoto, threads: int
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the rows of the spans, those of a photo together, in order; photos go ahead."""
    jobs = [
        (numbers[0], [source for n in numbers if isinstance(source := rows[n], Region)])
        for span in spans
        for _, group in groupby(range(span.start, span.stop), lambda n: photo_of(rows[n]))
        if (numbers := list(group))
    ]
    rows_of = features.prepare()
    waiting: deque[tuple[int, Future[RowBlock]]] = deque()
    with one_core_each(), ThreadPoolExecutor(threads, thread_name_prefix="regions") as pool:
        try:
            for first, regions in jobs:
                if len(waiting) == threads + _PHOTOS_AHEAD:
                    row, block = waiting.popleft()
                    yield row, block.result()
                waiting.append((first, pool.submit(_photo, regions, features, rows_of)))
            for row, block in waiting:
                yield row, block.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _photo(regions: list[Region], features: ByPhoto, rows_of: RowsOf) -> RowBlock:
    """Compute the rows of some regions of one photo."""
    first = regions[0]
    decoded = first.photos.read(first.photo, features.rule, None)
    status, reason, image = decoded.status, decoded.reason, decoded.image
    if image is not None and first.photo_crc32 not in (0, decoded.source_crc32):
        status, image = REFUSED, None
        reason = "the photo has changed since its boxes were proposed; propose again"
    rows = np.full((len(regions), *features.header.row_shape), np.nan, np.float32)
    if image is not None:
        rows = rows_of(image, np.array([region.box for region in regions]))
    return RowBlock(
        rows,
        np.full(len(regions), status, np.uint8),
        (reason,) * len(regions),
        np.array([region.source_crc32(decoded.source_crc32) for region in regions], np.uint32),
    )


def refuse_others(recipe: str, options: Mapping[str, Any]) -> None:
    """Refuse the options of extraction that this way does not have, where they ask for something.

    Raises
    ------
    WrongUsage
        There is one.
    """
    if unknown := sorted(name for name, value in options.items() if value):
        raise WrongUsage(f"{recipe} has no option {', '.join(unknown)}; leave it out")
