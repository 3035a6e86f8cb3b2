"""Regions whose features are computed per image, as rows of a feature set."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby

import numpy as np

from pipeline.images.decoding.decode import source_crc32
from pipeline.images.region import Region
from pipeline.regions.box_geometry import BOX_GEOMETRY, box_geometry_features
from pipeline.regions.by_photo import ROI_ALIGN, ByPhoto, RowsOf
from pipeline.regions.roi_align import roi_align_features
from pipeline.store.devices import one_core_each
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.options import Compute
from pipeline.store.jobs.ordered import ending_at_once, in_order
from pipeline.store.jobs.origins import Files
from pipeline.store.objects.urls import absolute
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import REFUSED, FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.shipping import Ship

_PHOTOS_AHEAD = 2


@dataclass(frozen=True)
class PhotoSource:
    """Regions as a `FeatureSource`; those of one image are computed together."""

    ids: Sequence[str]
    regions: Sequence[Region]  # those of one image are consecutive
    recipe: str
    how: Compute
    features: ByPhoto
    unit: str = "region"

    @property
    def gpu(self) -> bool:
        """Whether the network runs on a GPU."""
        return self.how.gpu

    @property
    def header(self) -> FeatureHeader:
        """Header with recipe and weights."""
        return self.features.header

    @property
    def origin(self) -> Files:
        """The image files and the boxes."""
        return Files(
            [region.photo for region in self.regions],
            "images",
            source_crc32,
            self._threads,
            self.how.engine,
            [region.box for region in self.regions],
            lambda row, crc: self.regions[row].source_crc32(crc),
        )

    @property
    def _threads(self) -> int:
        return self.how.threads or len(os.sched_getaffinity(0))

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Compute the regions of some spans, image by image, with prefetch."""
        groups = [
            (numbers[0], [self.regions[n] for n in numbers])
            for span in spans
            for _, group in groupby(range(span.start, span.stop), lambda n: self.regions[n].photo)
            if (numbers := list(group))
        ]
        rows_of = self.features.prepare()
        with (
            one_core_each(),
            ThreadPoolExecutor(self._threads, thread_name_prefix="regions") as pool,
            ending_at_once(pool),
        ):
            blocks = in_order(
                groups,
                lambda group: pool.submit(_photo, group[1], self.features, rows_of, watch),
                self._threads + _PHOTOS_AHEAD,
            )
            for (first, _), block in blocks:
                yield first, block

    def part(
        self, rows: RowNumbers, threads: int | None, ship: Ship
    ) -> Callable[[], FeatureSource]:
        """Return the source of some regions on a worker, which builds the network once."""
        how = replace(self.how, weights=self.how.named_weights)
        how = replace(how, threads=how.threads or (None if how.gpu else threads))
        ids = [self.ids[row] for row in rows.tolist()]
        regions = [self.regions[row] for row in rows.tolist()]
        regions = [replace(region, photo=absolute(region.photo)) for region in regions]
        header = self.header
        return partial(_part, self.recipe, header.dataset, header.dtype, how, ids, regions)


def region_features(recipe: str, dataset: str, storage: str, how: Compute) -> ByPhoto:
    """Return the features of a recipe, `BOX_GEOMETRY` or a name that ends in `ROI_ALIGN`."""
    if recipe == BOX_GEOMETRY:
        return box_geometry_features(dataset, storage, how)
    return roi_align_features(recipe, dataset, storage, how)


_features_on_worker = lru_cache(maxsize=1)(region_features)


def is_by_photo(recipe: str) -> bool:
    """Return whether the region features of a recipe are computed per image."""
    return recipe == BOX_GEOMETRY or recipe.endswith(ROI_ALIGN)


def _part(
    recipe: str,
    dataset: str,
    storage: str,
    how: Compute,
    ids: Sequence[str],
    regions: Sequence[Region],
) -> PhotoSource:
    """Build the source of some regions on a worker."""
    features = _features_on_worker(recipe, dataset, storage, how)
    return PhotoSource(ids, regions, recipe, how, features)


def _photo(regions: list[Region], features: ByPhoto, rows_of: RowsOf, watch: Stopwatch) -> RowBlock:
    """Compute the rows of some regions of one image."""
    first = regions[0]
    decoded = first.photos.read(first.photo, features.rule, watch)
    status, reason, image = decoded.status, decoded.reason, decoded.image
    if image is not None and first.photo_crc32 not in (0, decoded.source_crc32):
        status, image = REFUSED, None
        reason = "the photo has changed since its boxes were proposed; propose again"
    # A row depends on its image and box only; an image that fails or has changed fails all its
    # regions, which stay NaN.
    rows = np.full((len(regions), *features.header.row_shape), np.nan, np.float32)
    if image is not None:
        rows = rows_of(image, np.array([region.box for region in regions]))
    return RowBlock(
        rows,
        np.full(len(regions), status, np.uint8),
        (reason,) * len(regions),
        np.array([region.source_crc32(decoded.source_crc32) for region in regions], np.uint32),
    )
