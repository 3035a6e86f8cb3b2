"""Region features from one feature map of the photo, by ROI align (He et al., ICCV 2017).

The recipe `<backbone>-roi-align` squashes the photo to twice the side that `<backbone>-grid` takes,
and reads the same layer. A region's row is the mean of 4 x 4 values within its box, each the
bilinear mix of the four nearest cells (`torchvision.ops.roi_align`: one bin, 16 samples, aligned,
so that cell i covers pixels i to i + 1 of the map). A region costs almost nothing beside its photo;
regions smaller than a cell differ little from their neighbours.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.devices import one_core_each
from pipeline.errors import WrongUsage
from pipeline.images.changes import changed_rows
from pipeline.images.decode import decoding_rule
from pipeline.images.network import RecipeNetwork
from pipeline.images.region import Region, Source, photo_of
from pipeline.images.rows import feature_header
from pipeline.images.transforms import cut_crops, resize_image
from pipeline.images.weights import load_weights
from pipeline.progress import Monitor
from pipeline.recipes import Crop, Recipe, RecipeError, Resize, resolve_recipe
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.format import OK, REFUSED, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span

ROI_ALIGN = "-roi-align"
_SAMPLES = 4
_PHOTOS_AHEAD = 2


def extract_aligned(
    sources: Mapping[str, Source],
    out: Path,
    recipe: str,
    dataset: str,
    precision: str,
    storage: str,
    monitor: Monitor,
    **options: Any,
) -> FeatureIndex:
    """Extract the features of regions, a photo at a time; see `pipeline.regions.features`.

    Photos go through the network one by one, so that a row depends on its photo and box alone.

    Parameters
    ----------
    sources : row id to its region; regions of a photo stand together.
    options : `weights`, `trained_on`, `rows_per_shard`, `compress`, `device`, `engine` and
        `threads` as `pipeline.images.extract.extract` has them; others are refused where they ask
        for something.

    Raises
    ------
    RecipeError
        There is no recipe `<backbone>-grid`.
    WrongUsage
        An option that this way does not have.
    """
    weights, trained_on = str(options.pop("weights", "imagenet")), options.pop("trained_on", None)
    rows_per_shard, compress = options.pop("rows_per_shard", None), options.pop("compress", False)
    device, engine = options.pop("device", "cpu"), options.pop("engine", "fast")
    count = options.pop("threads", None) or len(os.sched_getaffinity(0))
    if unknown := sorted(name for name, value in options.items() if value):
        raise WrongUsage(f"{recipe} has no option {', '.join(unknown)}; leave it out")
    resolved = map_recipe(recipe, precision, storage)
    loaded = load_weights(resolved, weights)
    header = feature_header(resolved, loaded, dataset, trained_on)
    pooling = {"pool": "roi align, one bin", "samples": [_SAMPLES, _SAMPLES], "aligned": True}
    shape = resolved.shape[-1:]
    header = replace(
        header,
        recipe={**header.recipe, "shape": shape, "axes": "row, channel", "region": pooling},
        axes="row, channel",
        row_shape=shape,
    )
    inputs = [engine, [s.box for s in sources.values() if isinstance(s, Region)]]
    started = time.monotonic()
    with ShardBuild(out, header, list(sources), rows_per_shard, compress, inputs) as build:
        rows = [sources[row_id] for row_id in build.ids]
        with monitor.progress("checking", "region") as progress:
            build.redo(changed_rows(build, rows, count, progress)[0])
        done, failed = build.rows_done, 0
        computed = len(rows) - done
        if computed:
            network = RecipeNetwork(resolved, loaded.state, device, engine)
            with monitor.progress(recipe, "region") as progress:
                for first_row, block in _blocks(build.pending(), rows, network, count):
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


def map_recipe(name: str, precision: str = "float32", storage: str = "float32") -> Recipe:
    """Return the recipe of the photo's map: that of `<backbone>-grid` at twice its side.

    Raises
    ------
    RecipeError
        There is no such grid, or it has no square cells.
    """
    grid = resolve_recipe(name.removesuffix(ROI_ALIGN) + "-grid", precision, storage)
    if len(grid.shape) != 3 or grid.crop.rule != "none":
        raise RecipeError(
            f"{grid.name} gives {grid.shape} of a {grid.crop.rule!r} crop; ROI align needs the map "
            "of a whole squashed photo"
        )
    side = 2 * grid.crop.size
    return replace(
        grid,
        name=name,
        resize=Resize("squash", side),
        crop=Crop("none", side),
        shape=(2 * grid.shape[0], 2 * grid.shape[1], grid.shape[2]),
        source="this project",
    )


def aligned_rows(grid: torch.Tensor, boxes: np.ndarray, width: int, height: int) -> np.ndarray:
    """Return the rows of some regions of a photo.

    Parameters
    ----------
    grid : (cells_y, cells_x, channels) float32, the map of the whole photo.
    boxes : (k, 4) in pixels of the photo.
    width, height : of the photo in pixels.

    Returns
    -------
    (k, channels) float32.
    """
    from torchvision.ops import roi_align

    down, across, _ = grid.shape
    scale = np.array([across / width, down / height] * 2)
    placed = torch.from_numpy((boxes * scale).astype(np.float32))
    maps = grid.permute(2, 0, 1).unsqueeze(0).contiguous()
    pooled = roi_align(maps, [placed], output_size=1, sampling_ratio=_SAMPLES, aligned=True)
    rows: np.ndarray = pooled.flatten(1).numpy()
    return rows


def _blocks(
    spans: list[Span], rows: list[Source], network: RecipeNetwork, threads: int
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the rows of the spans, those of a photo together, in order; photos go ahead."""
    jobs = [
        (numbers[0], [source for n in numbers if isinstance(source := rows[n], Region)])
        for span in spans
        for _, group in groupby(range(span.start, span.stop), lambda n: photo_of(rows[n]))
        if (numbers := list(group))
    ]
    waiting: deque[tuple[int, Future[RowBlock]]] = deque()
    with one_core_each(), ThreadPoolExecutor(threads, thread_name_prefix="align") as pool:
        try:
            for first, regions in jobs:
                if len(waiting) == threads + _PHOTOS_AHEAD:
                    row, block = waiting.popleft()
                    yield row, block.result()
                waiting.append((first, pool.submit(_photo, regions, network)))
            for row, block in waiting:
                yield row, block.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _photo(regions: list[Region], network: RecipeNetwork) -> RowBlock:
    """Compute the rows of some regions of one photo."""
    recipe, first = network.recipe, regions[0]
    decoded = first.photos.read(first.photo, decoding_rule(recipe.decode), None)
    status, reason, image = decoded.status, decoded.reason, decoded.image
    if image is not None and first.photo_crc32 not in (0, decoded.source_crc32):
        status, image = REFUSED, None
        reason = "the photo has changed since its boxes were proposed; propose again"
    features = np.full((len(regions), recipe.shape[-1]), np.nan, np.float32)
    if image is not None:
        windows = cut_crops(resize_image(image, recipe.resize), network.window)
        grid = network(torch.from_numpy(windows[None].copy()))[0]
        boxes = np.array([region.box for region in regions])
        features = aligned_rows(grid, boxes, image.width, image.height)
    return RowBlock(
        features,
        np.full(len(regions), status, np.uint8),
        (reason,) * len(regions),
        np.array([region.source_crc32(decoded.source_crc32) for region in regions], np.uint32),
    )
