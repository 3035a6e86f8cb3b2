"""One shard of image features as a task of a worker.

The network is built once in a worker, from the name or path of its weights, and kept for the
next shard.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from pipeline.images.network import RecipeNetwork
from pipeline.images.presence import absent_rows, common_folder, not_seen, require_there
from pipeline.images.region import PhotoCache, Region, Source, photo_of
from pipeline.images.rows import (
    Parallelism,
    default_parallelism,
    feature_header,
    picture_rows,
)
from pipeline.images.weights import load_weights
from pipeline.progress import Progress, Stopwatch, no_progress
from pipeline.recipes import Recipe, resolve_recipe
from pipeline.shards.format import MISSING, FeatureHeader, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.shards.resume.distributed import Executor, build_on_workers
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.shards.resume.job import ShardJob, ShardResult, make_shard
from pipeline.shards.resume.job_ref import JobRef, OnProgress

_GPU_READERS = 16
_building = Lock()


@dataclass(frozen=True)
class ExtractionSettings:
    """How workers are to compute features.

    Attributes
    ----------
    recipe, device, engine : of the network; the device is the worker's.
    weights : see `load_weights`; workers must see a file under the same path.
    batch_size : images in a batch.
    threads, readers : of a worker's `Parallelism`; None: what suits the worker.
    region : how regions are cut, as the header's recipe says it; None: rows are whole pictures.
    """

    recipe: Recipe
    weights: str
    device: str
    engine: str
    batch_size: int
    threads: int | None = None
    readers: int | None = None
    region: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values, the path of a weights file made absolute."""
        named = self.weights == "imagenet" or self.weights.startswith("random:")
        return {
            "recipe": [self.recipe.name, self.recipe.precision, self.recipe.storage],
            "weights": self.weights if named else str(Path(self.weights).absolute()),
            "device": self.device,
            "engine": self.engine,
            "batch_size": self.batch_size,
            "threads": [self.threads, self.readers],
            "region": self.region,
        }


def extract_on_workers(
    build: ShardBuild,
    paths: Sequence[Source],
    settings: ExtractionSettings,
    executor: Executor,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Have the pending rows of a feature set computed by workers and publish it.

    The bytes are those of `extract_features` with the same batch size, on the same kind of
    processor with the same software.

    Parameters
    ----------
    build : an entered `ShardBuild`.
    paths : the image file of each row, or a region of it, which the workers must see under the
        same path.
    settings : how they compute.
    executor : runs the tasks.
    progress, watch : see `build_on_workers`.

    Raises
    ------
    ImageReadError
        A worker does not see the pictures, or files are missing because their folder has gone.
    OtherShard
        A worker has other weights or other software than this process.
    ShardError
        See `build_on_workers`.
    """
    folder = common_folder(photo_of(source) for source in paths)

    def sources_of(rows: Span) -> dict[str, Any]:
        sources = paths[rows.start : rows.stop]
        if absent := absent_rows([photo_of(source) for source in sources]):
            require_there(folder)
        return {"sources": [_to_json(source) for source in sources], "absent": absent}

    # A batch of a shard with fewer rows is filled up as it is in one process.
    batch_size = min(settings.batch_size, len(paths))
    values = replace(settings, batch_size=batch_size).to_json()
    return build_on_workers(build, sources_of, values, make_image_shard, executor, progress, watch)


def make_image_shard(ref: JobRef, shard: int, on_progress: OnProgress) -> ShardResult:
    """Make one shard of image features, on a worker."""
    return make_shard(ref, shard, _compute, on_progress)


def _compute(
    job: ShardJob, spans: Sequence[Span], watch: Stopwatch
) -> Iterator[tuple[int, RowBlock]]:
    settings = job.settings
    with _building:
        network, header = _network(
            *settings["recipe"],
            settings["weights"],
            settings["device"],
            settings["engine"],
            job.header.dataset,
        )
    if region := settings["region"]:
        header = replace(header, recipe={**header.recipe, "region": region})
    job.require_same(header)
    usual = _default_on_worker(network.recipe, settings["device"])
    threads, readers = settings["threads"]
    parallelism = Parallelism(
        settings["batch_size"], threads or usual.threads, readers or usual.readers
    )
    photos = PhotoCache()
    paths = [_from_json(source, region, photos) for source in job.sources["sources"]]
    absent = {*job.sources["absent"]}
    for first_row, block in picture_rows(spans, paths, network, parallelism, watch):
        for row, status in enumerate(block.status, first_row):
            if status == MISSING and row not in absent:
                raise not_seen(photo_of(paths[row]), "pictures")
        yield first_row, block


def _to_json(source: Source) -> Any:
    if isinstance(source, Region):
        return [str(source.photo.absolute()), list(source.box), source.photo_crc32]
    return str(source.absolute())


def _from_json(value: Any, region: dict[str, Any] | None, photos: PhotoCache) -> Source:
    if region is None:
        return Path(value)
    path, (x0, y0, x1, y1), crc32 = value
    return Region(Path(path), (x0, y0, x1, y1), region["context"], crc32, photos)


@lru_cache(maxsize=1)
def _network(
    recipe_name: str,
    precision: str,
    storage: str,
    weights: str,
    device: str,
    engine: str,
    dataset: str,
) -> tuple[RecipeNetwork, FeatureHeader]:
    # For good: tasks on other threads of this worker would put back what they found.
    torch.set_num_threads(1)
    recipe = resolve_recipe(recipe_name, precision, storage)
    loaded = load_weights(recipe, weights)
    network = RecipeNetwork(recipe, loaded.state, device, engine)
    return network, feature_header(recipe, loaded, dataset)


def _default_on_worker(recipe: Recipe, device: str) -> Parallelism:
    """Return the usual parallelism of a worker: on a CPU one thread, for a GPU its cores read."""
    usual = default_parallelism(recipe, device)
    if torch.device(device).type == "cpu":
        return usual
    readers = min(_GPU_READERS, len(os.sched_getaffinity(0)))
    return Parallelism(usual.batch_size, usual.threads, readers)
