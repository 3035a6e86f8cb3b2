"""Batched extraction of image features on threads.

Reader threads prefetch: they read, decode and resize ahead. Compute threads run batches through the
network. The caller's thread receives the rows in order.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.devices import device_type, one_core_each
from pipeline.files import created_by
from pipeline.images.network import RecipeNetwork
from pipeline.images.region import Picture
from pipeline.images.transforms import Sample, read_sample
from pipeline.images.weights import Weights
from pipeline.jobs.ordered import ending_at_once, in_order
from pipeline.progress import FORWARD, Stopwatch
from pipeline.recipes import Recipe
from pipeline.shards.format import FeatureHeader, RowBlock, names_in
from pipeline.shards.plan import Span

# Default number of crops per batch. On a CPU each core has its own batch, and small ones stay in
# its cache.
CROPS_PER_BATCH, CROPS_PER_BATCH_ON_GPU = 8, 128
# Batches to prefetch, beyond those in the network.
BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Parallelism:
    """Batch size and degree of parallelism.

    Attributes
    ----------
    batch_size : int. Images per batch; the last batch is padded with black images.
    threads : int. Batches computed concurrently, one per thread. On a CPU every thread uses one
        core, so that the load of another program slows down only one of them. Results do not depend
        on it.
    readers : int. Prefetch threads, which read, decode and resize images.
    """

    batch_size: int
    threads: int
    readers: int


def default_parallelism(recipe: Recipe, device: str) -> Parallelism:
    """Return the default batch size and threads: as many as torch uses, or two for a GPU."""
    cores = torch.get_num_threads()
    gpu = device_type(device) != "cpu"
    crops = CROPS_PER_BATCH_ON_GPU if gpu else CROPS_PER_BATCH
    return Parallelism(
        batch_size=max(1, crops // recipe.crop.windows),
        threads=2 if gpu else cores,
        readers=max(1, min(16 if gpu else 8, cores)),
    )


def feature_header(
    recipe: Recipe, weights: Weights, dataset: str, trained_on: str | None = None
) -> FeatureHeader:
    """Return the header of image features.

    Parameters
    ----------
    recipe : Recipe. Recipe of the features.
    weights : Weights. Weights of the network; name and hash are recorded.
    dataset : str. Name of the dataset.
    trained_on : str or None. Training datasets of the weights, comma-separated; None: as in the
        recipe.
    """
    own = recipe.trained_on if weights.name == recipe.weights else ()
    return FeatureHeader(
        recipe=recipe.to_json(),
        weights=weights.name,
        weights_sha256=weights.sha256,
        axes=recipe.axes,
        dataset=dataset,
        row_shape=recipe.shape,
        dtype=recipe.storage,
        created_by=created_by("torch", "torchvision", "pillow", "numpy", "h5py"),
        trained_on=own if trained_on is None else names_in(trained_on),
    )


def picture_rows(
    spans: Iterable[Span],
    pictures: Sequence[Picture],
    network: RecipeNetwork,
    parallelism: Parallelism,
    watch: Stopwatch,
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the rows of spans in order, each batch with the number of its first row.

    No batch crosses two spans or shards. Batches have the same rows in an interrupted run and in
    any process, so that features have the same bytes.

    Parameters
    ----------
    spans : iterable of Span. Rows to compute.
    pictures : sequence of Path, Region or Image. Image file, region or Pillow image of each row.
    network : RecipeNetwork. Network of the recipe.
    parallelism : Parallelism. Batch size and threads. Only `batch_size` affects features, within
        rounding.
    watch : Stopwatch. Accumulates the seconds of each stage.

    Raises
    ------
    FileReadError
        The file system failed, not a file.
    """
    batches = [batch for span in spans for batch in span.batches(parallelism.batch_size)]
    recipe, window, size = network.recipe, network.window, parallelism.batch_size
    with (
        one_core_each(),
        ThreadPoolExecutor(parallelism.readers, thread_name_prefix="read") as reading,
        ThreadPoolExecutor(parallelism.threads, thread_name_prefix="compute") as computing,
        ending_at_once(reading, computing),
    ):

        def start(batch: Span) -> Future[RowBlock]:
            samples = [
                reading.submit(read_sample, picture, recipe, window, watch)
                for picture in pictures[batch.start : batch.stop]
            ]
            return computing.submit(_compute, samples, network, size, watch)

        for batch, block in in_order(batches, start, parallelism.threads + BATCHES_AHEAD):
            yield batch.start, block


def _compute(
    reading: Sequence[Future[Sample]], network: RecipeNetwork, size: int, watch: Stopwatch
) -> RowBlock:
    """Compute the rows of a batch, padded with black images to `size`.

    With a constant batch size, a row does not depend on how many of its neighbours failed, and
    weights are packed for one size only.
    """
    samples = [future.result() for future in reading]
    found = [windows for s in samples if (windows := s.windows) is not None]
    rows = np.empty((0, *network.recipe.shape), np.float32)
    if found:
        batch = np.zeros((size, *found[0].shape), np.uint8)
        np.stack(found, out=batch[: len(found)])
        with watch.timing(FORWARD):
            rows = network(torch.from_numpy(batch)).numpy()[: len(found)]
    if len(found) == len(samples):
        features = rows
    else:
        features = np.full((len(samples), *network.recipe.shape), np.nan, np.float32)
        features[[sample.windows is not None for sample in samples]] = rows
    return RowBlock(
        features,
        np.array([sample.status for sample in samples], np.uint8),
        tuple(sample.error for sample in samples),
        np.array([sample.source_crc32 for sample in samples], np.uint32),
    )
