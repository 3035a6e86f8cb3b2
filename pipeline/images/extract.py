"""The extraction loop: threads read and decode ahead, the network maps, shards are written."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pipeline.datasets.manifest import ImageEntry
from pipeline.images.decode import MissingImage, RefusedImage, UnreadableImage, decode_rgb
from pipeline.images.geometry import cut_crops, resize_image
from pipeline.images.network import FeatureNetwork
from pipeline.images.weights import Weights
from pipeline.recipes import Recipe
from pipeline.shards.build import ShardBuild
from pipeline.shards.format import MISSING, OK, REFUSED, UNREADABLE, FeatureHeader, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.software import created_by

# Crops that go through the network together, unless a batch size is given: fastest on two
# cores for all three backbones. A GPU wants more.
CROPS_PER_BATCH = 8
# Batches that are read ahead of the network.
BATCHES_AHEAD = 2

Progress = Callable[[int, int, int], None]
"""Called with rows done, rows in all, and rows that failed in this run."""


@dataclass(frozen=True)
class Sample:
    """One image as the network sees it, or the reason why it cannot.

    crops : (crops, size, size, 3) uint8, or None if `status` is not 0.
    """

    crops: np.ndarray | None
    status: int = OK
    error: str = ""


def feature_header(recipe: Recipe, weights: Weights, dataset: str) -> FeatureHeader:
    """Return what the shards of these features will say of themselves."""
    return FeatureHeader(
        recipe=recipe.to_json(),
        weights=weights.name,
        weights_sha256=weights.sha256,
        axes=recipe.axes,
        dataset=dataset,
        row_shape=recipe.shape,
        dtype=recipe.storage,
        created_by=created_by("torch", "torchvision", "pillow", "numpy", "h5py"),
    )


def file_stamps(entries: Sequence[ImageEntry], image_root: Path) -> list[list[int]]:
    """Return size in bytes and time of change of each image, [] where there is none.

    They tell unfinished work on other pictures apart; no file is read.
    """
    stamps = []
    for entry in entries:
        try:
            facts = (image_root / entry.file).stat()
            stamps.append([facts.st_size, facts.st_mtime_ns])
        except OSError:
            stamps.append([])
    return stamps


def default_batch_size(recipe: Recipe) -> int:
    """Return the images of a batch that keep a processor busy in little memory."""
    return max(1, CROPS_PER_BATCH // (10 if recipe.crop.rule == "ten" else 1))


def extract_features(
    build: ShardBuild,
    entries: Sequence[ImageEntry],
    image_root: Path,
    network: FeatureNetwork,
    batch_size: int,
    workers: int,
    progress: Progress = lambda done, total, failed: None,
) -> FeatureIndex:
    """Compute the pending rows of a feature set and publish it.

    A batch never crosses a shard, and batches fall on the same rows whether or not a run was
    interrupted, so that an interrupted run gives the same bytes.

    Parameters
    ----------
    build : an entered `ShardBuild` whose ids are those of `entries`.
    entries : the images, in row order.
    image_root : folder of their files.
    network : the recipe's network.
    batch_size : images that go through the network together.
    workers : threads that read, decode and resize ahead of the network.
    progress : called after every batch.

    Returns
    -------
    FeatureIndex
        With a failed row for each image that is missing, unreadable or refused.
    """
    recipe = network.recipe
    batches = [batch for span in build.pending() for batch in span.batches(batch_size)]
    done = build.plan.rows - sum(len(batch) for batch in batches)
    failed = 0
    progress(done, build.plan.rows, failed)
    paths = [image_root / entry.file for entry in entries]
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
        for batch, samples in _read_ahead(pool, batches, paths, recipe):
            block = _map(samples, network)
            build.append(batch.start, block)
            done += len(block)
            failed += int((block.status != OK).sum())
            progress(done, build.plan.rows, failed)
    return build.publish()


def read_sample(path: Path, recipe: Recipe) -> Sample:
    """Read one file: decoded, resized and cropped, or why it cannot be."""
    try:
        return Sample(cut_crops(resize_image(decode_rgb(path), recipe.resize), recipe.crop))
    except MissingImage as error:
        return Sample(None, MISSING, str(error))
    except RefusedImage as error:
        return Sample(None, REFUSED, str(error))
    except UnreadableImage as error:
        return Sample(None, UNREADABLE, str(error))


def _read_ahead(
    pool: ThreadPoolExecutor, batches: Sequence[Span], paths: Sequence[Path], recipe: Recipe
) -> Iterator[tuple[Span, list[Sample]]]:
    ahead: deque[tuple[Span, list[Future[Sample]]]] = deque()
    try:
        for batch in batches:
            rows = range(batch.start, batch.stop)
            ahead.append((batch, [pool.submit(read_sample, paths[row], recipe) for row in rows]))
            if len(ahead) > BATCHES_AHEAD:
                span, futures = ahead.popleft()
                yield span, [future.result() for future in futures]
        for span, futures in ahead:
            yield span, [future.result() for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _map(samples: Sequence[Sample], network: FeatureNetwork) -> RowBlock:
    features = np.full((len(samples), *network.recipe.shape), np.nan, np.float32)
    good = [i for i, sample in enumerate(samples) if sample.crops is not None]
    if good:
        crops = np.stack([crops for s in samples if (crops := s.crops) is not None])
        features[good] = network(torch.from_numpy(crops)).numpy()
    return RowBlock(
        features,
        np.array([sample.status for sample in samples], np.uint8),
        tuple(sample.error for sample in samples),
    )
