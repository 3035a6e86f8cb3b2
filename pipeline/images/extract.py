"""The extraction loop: threads read ahead, threads map, and the caller's thread writes."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pipeline.devices import one_core_each
from pipeline.images.decode import ImageReadError, source_crc32
from pipeline.images.network import RecipeNetwork
from pipeline.images.transforms import Sample, read_sample
from pipeline.progress import FORWARD, WRITE, Progress, Stopwatch, no_progress
from pipeline.recipes import Recipe
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.format import MISSING, OK, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span

# Crops that go through the network together, unless a batch size is given. On a CPU each core
# has a batch of its own, and small ones stay in its cache.
CROPS_PER_BATCH, CROPS_PER_BATCH_ON_GPU = 8, 128
# Batches that are read ahead of those in the network.
BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Parallelism:
    """How many do the work at once.

    Attributes
    ----------
    batch_size : images that go through the network together.
    mappers : batches that are in the network at once, each on a thread of its own. On a CPU
        every mapper computes on one core, which no other program's load can stall, and the
        results do not depend on their number.
    readers : threads that read, decode and resize ahead of the network.
    """

    batch_size: int
    mappers: int
    readers: int


def default_parallelism(recipe: Recipe, device: str) -> Parallelism:
    """Return what suits this machine: a mapper for each of torch's threads, or two for a GPU."""
    cores = torch.get_num_threads()
    gpu = torch.device(device).type != "cpu"
    crops = CROPS_PER_BATCH_ON_GPU if gpu else CROPS_PER_BATCH
    per_image = 10 if recipe.crop.rule == "ten" else 1
    return Parallelism(
        batch_size=max(1, crops // per_image),
        mappers=2 if gpu else cores,
        readers=max(1, min(16 if gpu else 8, cores)),
    )


def file_stamps(paths: Sequence[Path]) -> list[list[int]]:
    """Return size in bytes and time of change of each file, [] where there is none.

    They tell unfinished work on other pictures apart; no file is read.
    """
    stamps = []
    for path in paths:
        try:
            facts = path.stat()
            stamps.append([facts.st_size, facts.st_mtime_ns])
        except (OSError, ValueError):
            stamps.append([])
    return stamps


def changed_rows(
    build: ShardBuild,
    paths: Sequence[Path],
    readers: int,
    progress: Progress = no_progress,
) -> tuple[list[int], list[int]]:
    """Return the finished rows whose files have changed since, and those whose files have gone.

    Every file of a finished row is read, which takes seconds where making the features took
    hours. Rows of unknown origin, such as imported ones, count as unchanged. Rows whose file has
    gone are no reason to make anything again: a disk that is not there must not cost features.

    Parameters
    ----------
    build : an entered build.
    paths : the file of each row.
    readers : threads that read.
    progress : called now and then.
    """
    changed: list[int] = []
    gone: list[int] = []
    with ThreadPoolExecutor(readers, thread_name_prefix="read") as pool:
        for span, status, known in build.finished():
            found = pool.map(source_crc32, paths[span.start : span.stop])
            for row, (code, old, new) in enumerate(
                zip(status, known, found, strict=True), span.start
            ):
                if new and int(old) != new and (old or code != OK):
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


def extract_features(
    build: ShardBuild,
    paths: Sequence[Path],
    network: RecipeNetwork,
    parallelism: Parallelism,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Compute the pending rows of a feature set and publish it.

    Parameters
    ----------
    build : an entered `ShardBuild`.
    paths : the image file of each row, in the build's row order.
    network : the recipe's network.
    parallelism : how many do the work. Only `batch_size` can change a feature, within rounding.
    progress : called after every batch.
    watch : gets the seconds by stage.

    Returns
    -------
    FeatureIndex
        With a failed row for each image that is missing, unreadable or refused.

    Raises
    ------
    ImageReadError
        The system, not a file, is at fault; rows that are done are kept.
    """
    watch = watch or Stopwatch()
    total = len(paths)
    done, failed = build.rows_done, 0
    progress(done, total, failed)
    for first_row, block in computed_rows(build.pending(), paths, network, parallelism, watch):
        with watch.timing(WRITE):
            build.append(first_row, block)
        done += len(block)
        failed += int((block.status != OK).sum())
        progress(done, total, failed)
    with watch.timing(WRITE):
        return build.publish()


def computed_rows(
    spans: Iterable[Span],
    paths: Sequence[Path],
    network: RecipeNetwork,
    parallelism: Parallelism,
    watch: Stopwatch,
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the rows of some spans in order, each batch with the number of its first row.

    No batch crosses two spans, and none two shards; batches fall on the same rows whether or not
    a run was interrupted and whoever computes them, so that the bytes are the same.

    Parameters
    ----------
    spans : rows to compute.
    paths : the image file of each row of the whole set.
    others : see `extract_features`.

    Raises
    ------
    ImageReadError
        The system, not a file, is at fault.
    """
    batches = [batch for span in spans for batch in span.batches(parallelism.batch_size)]
    size = min(parallelism.batch_size, len(paths))
    with (
        one_core_each(),
        ThreadPoolExecutor(parallelism.readers, thread_name_prefix="read") as reading,
        ThreadPoolExecutor(parallelism.mappers, thread_name_prefix="map") as mapping,
    ):
        most = parallelism.mappers + BATCHES_AHEAD
        ahead = _ahead(reading, mapping, batches, paths, network, size, most, watch)
        for batch, block in ahead:
            if (block.status == MISSING).any():
                _require_there(Path(os.path.commonpath([path.parent for path in paths])))
            yield batch.start, block


def _ahead(
    reading: ThreadPoolExecutor,
    mapping: ThreadPoolExecutor,
    batches: Sequence[Span],
    paths: Sequence[Path],
    network: RecipeNetwork,
    size: int,
    most: int,
    watch: Stopwatch,
) -> Iterator[tuple[Span, RowBlock]]:
    """Yield finished batches in order, with at most `most` on their way."""
    recipe, window = network.recipe, network.window
    waiting: deque[tuple[Span, Future[RowBlock]]] = deque()
    try:
        for batch in batches:
            if len(waiting) == most:
                span, block = waiting.popleft()
                yield span, block.result()
            samples = [
                reading.submit(read_sample, path, recipe, window, watch)
                for path in paths[batch.start : batch.stop]
            ]
            waiting.append((batch, mapping.submit(_map, samples, network, size, watch)))
        for span, block in waiting:
            yield span, block.result()
    finally:
        reading.shutdown(wait=False, cancel_futures=True)
        mapping.shutdown(wait=False, cancel_futures=True)


def _map(
    reading: Sequence[Future[Sample]], network: RecipeNetwork, size: int, watch: Stopwatch
) -> RowBlock:
    """Compute the rows of a batch, filled up with nothing to `size` images.

    The network always sees as many, so that a row does not depend on how many of its
    neighbours failed, and weights are arranged for one size only.
    """
    samples = [future.result() for future in reading]
    features = np.full((len(samples), *network.recipe.shape), np.nan, np.float32)
    good = [i for i, sample in enumerate(samples) if sample.windows is not None]
    if good:
        found = [windows for s in samples if (windows := s.windows) is not None]
        batch = np.zeros((size, *found[0].shape), np.uint8)
        batch[: len(found)] = found
        with watch.timing(FORWARD):
            features[good] = network(torch.from_numpy(batch)).numpy()[: len(found)]
    return RowBlock(
        features,
        np.array([sample.status for sample in samples], np.uint8),
        tuple(sample.error for sample in samples),
        np.array([sample.source_crc32 for sample in samples], np.uint32),
    )


def _require_there(folder: Path) -> None:
    """Tell missing files from a folder that has gone, such as one unmounted."""
    if not folder.exists():
        raise ImageReadError(
            f"{folder}, the folder of the images, is not there; mount it again, or prepare the "
            "dataset with the right one, and give the same command again: it goes on where it "
            "stopped"
        )
