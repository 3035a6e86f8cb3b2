"""Clips as rows of a feature set; one decoding of a clip can serve several feature sets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
import torch

from pipeline.clips.clip_batches import View, clip_rows, default_readers, default_threads
from pipeline.clips.clip_file import clip_crc32
from pipeline.clips.recipes import ClipRecipe
from pipeline.clips.views import clip_header, clip_view, load_clip_weights
from pipeline.store.devices import device_type
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.options import Compute
from pipeline.store.jobs.origins import Files
from pipeline.store.jobs.sink import Sink
from pipeline.store.progress import WRITE, Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.shipping import Ship


@dataclass(frozen=True)
class ClipSource:
    """Clips as a `pipeline.store.jobs.feature_source.FeatureSource`."""

    header: FeatureHeader
    ids: Sequence[str]
    clips: Sequence[Path]
    recipe: ClipRecipe
    how: Compute  # options of the caller
    threads: int  # concurrent batches
    readers: int  # clips decoded at once
    view: Callable[[], View]  # builds the network on the first call
    also: tuple[
        Sink["ClipSource"], ...
    ] = ()  # other sets of the same clips, so that each is decoded once
    unit: str = "clip"

    @property
    def gpu(self) -> bool:
        """Whether the network runs on a GPU."""
        return self.how.gpu

    @property
    def origin(self) -> Files:
        """The files of the clips."""
        return Files(self.clips, "clips", clip_crc32, self.readers, self.how.engine)

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Compute the clips of some spans; the sinks keep their rows."""
        requested: list[set[int]] = [set() for _ in self.ids]
        rows = [row for span in spans for row in range(span.start, span.stop)]
        for row in rows:
            requested[row].add(0)
        for number, sink in enumerate(self.also, 1):
            pending = sink.pending([self.ids[row] for row in rows]) >= 0
            for at in np.flatnonzero(pending).tolist():
                requested[rows[at]].add(number)
        views = [self.view(), *(sink.source.view() for sink in self.also)]
        frozen = [frozenset(w) for w in requested]
        for row, blocks in clip_rows(self.clips, frozen, views, self.threads, self.readers, watch):
            with watch.timing(WRITE):
                for number in sorted({*blocks} - {0}):
                    self.also[number - 1].keep([self.ids[row]], blocks[number])
            yield row, blocks[0]

    def part(
        self, rows: RowNumbers, threads: int | None, ship: Ship
    ) -> Callable[[], FeatureSource]:
        """Return the source of some clips on a worker, which builds the network once."""
        how = replace(self.how, weights=self.how.named_weights, codebook=None)
        how = replace(how, threads=how.threads or (None if how.gpu else threads))
        return partial(
            _part,
            self.recipe,
            how,
            self.header.dataset,
            [self.ids[row] for row in rows.tolist()],
            [self.clips[row].absolute() for row in rows.tolist()],
        )


def clip_source(
    ids: Sequence[str],
    clips: Sequence[Path],
    recipe: ClipRecipe,
    dataset: str,
    how: Compute,
) -> ClipSource:
    """Return the source of clip features; loads the weights now, and builds the network later."""
    loaded = load_clip_weights(recipe, how)
    return ClipSource(
        clip_header(recipe, loaded, dataset, how.trained_on),
        ids,
        clips,
        recipe,
        how,
        how.threads or default_threads(how.device),
        how.readers or default_readers(how.device),
        cache(lambda: clip_view(recipe, loaded, how)),
    )


def _part(
    recipe: ClipRecipe,
    how: Compute,
    dataset: str,
    ids: Sequence[str],
    clips: Sequence[Path],
) -> ClipSource:
    """Build the source of some clips on a worker."""
    view, header = _view(recipe, how, dataset)
    cpu = device_type(how.device) == "cpu"
    threads = how.threads or (1 if cpu else default_threads(how.device))
    readers = how.readers or default_readers(how.device)
    return ClipSource(header, ids, clips, view.recipe, how, threads, readers, lambda: view)


@lru_cache(maxsize=1)
def _view(recipe: ClipRecipe, how: Compute, dataset: str) -> tuple[View, FeatureHeader]:
    # Not restored afterwards: concurrent tasks on this worker would undo each other's setting.
    torch.set_num_threads(1)
    loaded = load_clip_weights(recipe, how)
    return clip_view(recipe, loaded, how), clip_header(recipe, loaded, dataset, how.trained_on)
