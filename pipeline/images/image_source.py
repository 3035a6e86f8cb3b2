"""Images, or regions cut from images, as rows of a feature set: a network's output for each."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import torch

from pipeline.images.batches import (
    Parallelism,
    default_parallelism,
    feature_header,
    gpu_readers,
    picture_rows,
)
from pipeline.images.decoding.decode import source_crc32
from pipeline.images.memory import expected_memory, resident_memory
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Recipe
from pipeline.images.region import Region, Source, photo_of
from pipeline.images.weights import Weights, load_weights, read_weights, write_weights
from pipeline.store.devices import AUTO, device_type
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.options import Compute
from pipeline.store.jobs.origins import Files
from pipeline.store.jobs.sink import Sink
from pipeline.store.objects.urls import absolute
from pipeline.store.progress import Monitor, Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.shards.writer import stored_block
from pipeline.store.wording import counted
from pipeline.store.workers.shipping import Ship, Shipped


@dataclass(frozen=True)
class ImageSource:
    """Images or cut regions as a `pipeline.store.jobs.feature_source.FeatureSource`."""

    header: FeatureHeader
    ids: Sequence[str]
    pictures: Sequence[Source]  # file or region of each row; regions of one image are consecutive
    recipe: Recipe
    how: Compute  # options of the caller
    parallelism: Parallelism  # follows from them
    network: Callable[..., RecipeNetwork]  # of recipes of its layers; built on the first call
    loaded: Weights
    region: dict[str, Any] | None = None
    """Cropping rule of regions, as in the header's recipe; None: rows are whole images."""
    also: tuple[Sink["ImageSource"], ...] = ()  # other layers of the network, in its order

    @property
    def unit(self) -> str:
        """Name of a row's unit, for messages."""
        return "image" if self.region is None else "region"

    @property
    def gpu(self) -> bool:
        """Whether the network runs on a GPU."""
        return self.how.gpu

    @property
    def origin(self) -> Files:
        """The image files, and the boxes of regions."""
        readers, engine = self.parallelism.readers, self.how.engine
        if self.region is None:
            # No copy: a list of a million paths would need more memory than all else.
            images = cast(Sequence[Path], self.pictures)
            return Files(images, "images", source_crc32, readers, engine)
        files = [photo_of(picture) for picture in self.pictures]
        boxes = [picture.box for picture in self.pictures if isinstance(picture, Region)]
        of_part = self._crc32_of_region
        return Files(files, "images", source_crc32, readers, engine, boxes, of_part)

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Yield the rows of some spans, each batch with the number of its first row."""
        network = self.network(self.recipe, *(sink.source.recipe for sink in self.also))
        return picture_rows(
            spans, self.pictures, network, self.parallelism, watch, self._stored, self._keep
        )

    def part(
        self, rows: RowNumbers, threads: int | None, ship: Ship
    ) -> Callable[[], FeatureSource]:
        """Return the source of some images on a worker, which builds the network once."""
        how, recipe = self.how, self.recipe
        sized_by_worker = how.device == AUTO and how.batch_size is None
        how = replace(
            how,
            weights=how.named_weights,
            # A batch of a short shard is padded as in one process. Only a worker that chooses its
            # device knows a suitable size.
            batch_size=None if sized_by_worker else self.parallelism.batch_size,
            threads=how.threads or (None if how.gpu else threads),
        )
        ids = [self.ids[row] for row in rows.tolist()]
        pictures = [_absolute(self.pictures[row]) for row in rows.tolist()]
        total, shipped = len(self.ids), self.shipped(ship)
        return partial(
            part_of_images, recipe, how, self.header.dataset, shipped, self.region, total, ids,
            pictures,
        )  # fmt: skip

    def shipped(self, ship: Ship) -> Shipped | None:
        """Return the weights as a task carries them; None: workers load them themselves."""
        return ship.made(
            f"{self.loaded.sha256}.safetensors", lambda path: write_weights(path, self.loaded)
        )

    def _stored(self, first_row: int, blocks: list[RowBlock]) -> list[RowBlock]:
        ids = self.ids[first_row : first_row + len(blocks[0])]
        headers = (self.header, *(sink.source.header for sink in self.also))
        return [stored_block(h, block, ids) for h, block in zip(headers, blocks, strict=True)]

    def _keep(self, first_row: int, others: list[RowBlock]) -> None:
        for sink, block in zip(self.also, others, strict=True):
            sink.keep(self.ids[first_row : first_row + len(block)], block)

    def _crc32_of_region(self, row: int, photo_crc32: int) -> int:
        picture = self.pictures[row]
        assert isinstance(picture, Region)
        return picture.source_crc32(photo_crc32)


def image_source(
    ids: Sequence[str],
    pictures: Sequence[Source],
    recipe: Recipe,
    dataset: str,
    how: Compute,
    monitor: Monitor,
    region: dict[str, Any] | None = None,
) -> ImageSource:
    """Return the source of image features; loads the weights now, and builds the network later."""
    return image_sources(ids, pictures, [recipe], dataset, how, monitor, region)[0]


def image_sources(
    ids: Sequence[str],
    pictures: Sequence[Source],
    recipes: Sequence[Recipe],
    dataset: str,
    how: Compute,
    monitor: Monitor,
    region: dict[str, Any] | None = None,
) -> list[ImageSource]:
    """Return the source of each of some layers of a network, whose weights are loaded once."""
    usual = default_parallelism(recipes[0], how.device)
    size = max(1, min(how.batch_size or usual.batch_size, len(ids)))
    parallelism = Parallelism(size, how.threads or usual.threads, how.readers or usual.readers)
    loaded = load_weights(recipes[0], str(how.weights), how.weights_prefix, recipes[1:])
    if loaded.remark:
        monitor.log(loaded.remark)

    @lru_cache(maxsize=1)
    def network(*layers: Recipe) -> RecipeNetwork:
        built = RecipeNetwork(layers[0], loaded.state, how.device, how.engine, layers[1:])
        _log_memory(built, parallelism, monitor)
        return built

    return [
        ImageSource(
            _with_region(feature_header(recipe, loaded, dataset, how.trained_on), region),
            ids, pictures, recipe, how, parallelism, network, loaded, region,
        )
        for recipe in recipes
    ]  # fmt: skip


def part_of_images(
    recipe: Recipe,
    how: Compute,
    dataset: str,
    shipped: Shipped | None,
    region: dict[str, Any] | None,
    rows: int,  # of the whole set
    ids: Sequence[str],
    pictures: Sequence[Source],
) -> ImageSource:
    """Build the source of some images on a worker."""
    weights = str(how.weights), how.weights_prefix
    loaded, network, header = _network(recipe, weights, shipped, how.device, how.engine, dataset)
    usual = _default_on_worker(network.recipe, how.device)
    size = how.batch_size or max(1, min(usual.batch_size, rows))
    parallelism = Parallelism(size, how.threads or usual.threads, how.readers or usual.readers)
    return ImageSource(
        _with_region(header, region), ids, pictures, network.recipe, how, parallelism,
        lambda recipe: network, loaded, region,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _network(
    recipe: Recipe,
    weights: tuple[str, str | None],
    shipped: Shipped | None,
    device: str,
    engine: str,
    dataset: str,
) -> tuple[Weights, RecipeNetwork, FeatureHeader]:
    # Not restored afterwards: concurrent tasks on this worker would undo each other's setting.
    torch.set_num_threads(1)
    loaded = read_weights(shipped.here()) if shipped else load_weights(recipe, *weights)
    network = RecipeNetwork(recipe, loaded.state, device, engine)
    return loaded, network, feature_header(recipe, loaded, dataset)


def _default_on_worker(recipe: Recipe, device: str) -> Parallelism:
    """Return the default parallelism of a worker: one thread on a CPU, most cores for a GPU."""
    usual = default_parallelism(recipe, device)
    if device_type(device) == "cpu":
        return usual
    readers = gpu_readers(len(os.sched_getaffinity(0)))
    return Parallelism(usual.batch_size, usual.threads, readers)


def _with_region(header: FeatureHeader, region: dict[str, Any] | None) -> FeatureHeader:
    if region is None:
        return header
    return replace(header, recipe={**header.recipe, "region": region})


def _absolute(picture: Source) -> Source:
    if isinstance(picture, Region):
        return replace(picture, photo=absolute(picture.photo))
    return absolute(picture)


def _log_memory(network: RecipeNetwork, parallelism: Parallelism, monitor: Monitor) -> None:
    sharing = "; the ten crops share their work" if network.shares_crops else ""
    used, extra = resident_memory() / 1e9, expected_memory(network, parallelism) / 1e9
    if network.remark:
        monitor.log(network.remark)
    monitor.log(
        f"batches of {counted(parallelism.batch_size, 'image')}, {parallelism.threads} at once, "
        f"{counted(parallelism.readers, 'reader')}; memory: {used:.1f} GB "
        f"now, at most {extra:.1f} GB more{sharing}"
    )
