"""Batched extraction of image features on threads.

Reader threads prefetch: they read, decode and resize ahead; for a GPU, in processes. Compute
threads run batches through the network. The caller's thread receives the rows in order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch

from pipeline.images.decoding.resampling import exact_resize
from pipeline.images.network import RecipeNetwork
from pipeline.images.reader_processes import ReaderProcesses
from pipeline.images.recipes import Recipe
from pipeline.images.region import Picture
from pipeline.images.transforms import Sample, read_sample
from pipeline.images.weights import Weights
from pipeline.store.devices import device_type, one_core_each
from pipeline.store.files import created_by
from pipeline.store.jobs.ordered import ending_at_once, in_order
from pipeline.store.progress import FORWARD, Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock, names_in
from pipeline.store.shards.plan import Span

Convert = Callable[[int, list[RowBlock]], list[RowBlock]]
"""Function of the number of a batch's first row, and its block of rows of each recipe."""

# Default number of crops per batch. On a CPU each core has its own batch, and small ones stay in
# its cache.
CROPS_PER_BATCH, CROPS_PER_BATCH_ON_GPU = 8, 128
# At least so many images: crops that share their work fill a GPU less.
_IMAGES_PER_BATCH_ON_GPU = 32
# Batches to prefetch, beyond those in the network.
BATCHES_AHEAD = 2
# Parts of a batch that are read in different processes, if processes read: with fewer, larger
# messages than one an image, the interpreter lock of this process is not the limit.
_PARTS = 8
# Images that are read while a process starts.
_WORTH_A_PROCESS = 64
_STORED = {"float32": torch.float32, "float16": torch.float16}
# Reading processes end with their network.
_PROCESSES: WeakKeyDictionary[RecipeNetwork, ReaderProcesses] = WeakKeyDictionary()


@dataclass(frozen=True)
class Parallelism:
    """Batch size and degree of parallelism; only the batch size affects features, by rounding."""

    batch_size: int
    """Images per batch; the last batch is padded with black images."""
    threads: int
    """Batches computed concurrently, one per thread. On a CPU every thread uses one core, so that
    the load of another program slows down only one of them. For a GPU, which computes two at a
    time, the other threads assemble batches and convert rows."""
    readers: int
    """Prefetch threads, which read, decode and resize images."""


def default_parallelism(recipe: Recipe, device: str) -> Parallelism:
    """Return the default batch size and threads: as many as torch uses, or four for a GPU."""
    cores = torch.get_num_threads()
    gpu = device_type(device) != "cpu"
    crops = CROPS_PER_BATCH_ON_GPU if gpu else CROPS_PER_BATCH
    return Parallelism(
        batch_size=max(_IMAGES_PER_BATCH_ON_GPU if gpu else 1, crops // recipe.crop.windows),
        threads=4 if gpu else cores,
        readers=gpu_readers(cores) if gpu else max(1, min(8, cores)),
    )


def gpu_readers(cores: int) -> int:
    """Return how many cores read for a GPU; the others assemble batches and verify shards."""
    return max(1, min(16, cores * 3 // 4))


def feature_header(
    recipe: Recipe, weights: Weights, dataset: str, trained_on: str | None = None
) -> FeatureHeader:
    """Return the header of image features; `trained_on` None: the recipe's, if the weights are."""
    recorded = recipe.trained_on if weights.name == recipe.weights else ()
    return FeatureHeader(
        recipe={**recipe.to_json(), **weights.recipe_fields},
        weights=weights.name, weights_sha256=weights.sha256,
        axes=recipe.axes, dataset=dataset, row_shape=recipe.shape, dtype=recipe.storage,
        created_by=created_by("torch", "torchvision", "pillow", "numpy", "h5py"),
        trained_on=recorded if trained_on is None else names_in(trained_on),
    )  # fmt: skip


def picture_rows(
    spans: Iterable[Span],
    pictures: Sequence[Picture],
    network: RecipeNetwork,
    parallelism: Parallelism,
    watch: Stopwatch,
    convert: Convert = lambda first_row, blocks: blocks,
    keep: Callable[[int, list[RowBlock]], None] = lambda first_row, others: None,
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the rows of spans in order, each batch with the number of its first row.

    `convert` is called on the threads that compute. `keep` receives the rows of the network's other
    recipes, in the same order.
    """
    # No batch crosses two spans or shards: batches have the same rows in an interrupted run and in
    # any process, so that features have the same bytes.
    batches = [batch for span in spans for batch in span.batches(parallelism.batch_size)]
    size = parallelism.batch_size
    # Compiled, or loaded, before there are threads or children: a fork meanwhile would inherit a
    # lock of the import, and each child would compile.
    exact_resize()
    together, read = reader_of(network, len(pictures), parallelism)
    with (
        one_core_each(),
        ThreadPoolExecutor(parallelism.readers, thread_name_prefix="read") as reading,
        ThreadPoolExecutor(parallelism.threads, thread_name_prefix="compute") as computing,
        ending_at_once(reading, computing),
    ):

        def start(batch: Span) -> Future[list[RowBlock]]:
            samples = [
                reading.submit(read, pictures[part.start : part.stop], watch)
                for part in batch.batches(together)
            ]

            # Waits for its readers on a compute thread. Batches are submitted in order to both
            # pools, so that the oldest batch never waits for a newer one.
            def rows() -> list[RowBlock]:
                return convert(batch.start, _compute(samples, network, size, watch))

            return computing.submit(rows)

        for batch, blocks in in_order(batches, start, parallelism.threads + BATCHES_AHEAD):
            keep(batch.start, blocks[1:])
            yield batch.start, blocks[0]


def reader_of(
    network: RecipeNetwork, pictures: int, parallelism: Parallelism
) -> tuple[int, Callable[[Sequence[Picture], Stopwatch], list[Sample]]]:
    """Return how many images of a batch to read at a time, and the function that reads them."""
    recipe, window = network.recipe, network.window
    if network.device.type != "cuda" or pictures < parallelism.readers * _WORTH_A_PROCESS:

        def read(some: Sequence[Picture], watch: Stopwatch) -> list[Sample]:
            return [read_sample(picture, recipe, window, watch) for picture in some]

        return 1, read
    if network not in _PROCESSES:
        _PROCESSES[network] = ReaderProcesses(recipe, window)
    return max(1, parallelism.batch_size // _PARTS), _PROCESSES[network]


def _compute(
    reading: Sequence[Future[list[Sample]]], network: RecipeNetwork, size: int, watch: Stopwatch
) -> list[RowBlock]:
    """Compute the rows of a batch, padded with black images to `size`, for each recipe."""
    # With a constant batch size, a row does not depend on how many of its neighbours failed, and
    # weights are packed for one size only.
    samples = [sample for future in reading for sample in future.result()]
    readable = [windows for s in samples if (windows := s.windows) is not None]
    several = [np.empty((0, *recipe.shape), np.float32) for recipe in network.recipes]
    if readable:
        batch = torch.zeros((size, *readable[0].shape), dtype=torch.uint8)
        np.stack(readable, out=batch.numpy()[: len(readable)])
        with watch.timing(FORWARD):
            # Converted here, since numpy takes 20 times as long to make float16.
            rows = [
                some[: len(readable)].to(_STORED[recipe.storage])
                for some, recipe in zip(network.every(batch), network.recipes, strict=True)
            ]
            several = [some.numpy() for some in rows]
    return [_block(samples, rows) for rows in several]


def _block(samples: Sequence[Sample], rows: np.ndarray) -> RowBlock:
    """Return the rows of the readable samples with NaN for the others."""
    features = rows
    if len(rows) < len(samples):
        features = np.full((len(samples), *rows.shape[1:]), np.nan, rows.dtype)
        features[[sample.windows is not None for sample in samples]] = rows
    return RowBlock(
        features,
        np.array([sample.status for sample in samples], np.uint8),
        tuple(sample.error for sample in samples),
        np.array([sample.source_crc32 for sample in samples], np.uint32),
    )
