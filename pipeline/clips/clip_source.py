"""Clips as rows of a feature set; one decoding of a clip can serve several feature sets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from pipeline.clips.clip_batches import View, clip_rows, default_readers, default_threads
from pipeline.clips.clip_file import clip_crc32
from pipeline.clips.recipes import ClipRecipe, resolve_clip_recipe
from pipeline.clips.views import clip_header, clip_view, load_clip_weights
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.devices import device_type
from pipeline.store.jobs.feature_source import Task
from pipeline.store.jobs.options import Compute
from pipeline.store.jobs.origins import Files
from pipeline.store.progress import WRITE, Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers


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
    also: tuple["Sink", ...] = ()  # other sets of the same clips, so that each is decoded once
    unit: str = "clip"

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
            for row in sink.next_of(rows, self.ids):
                requested[row].add(number)
        views = [self.view(), *(sink.source.view() for sink in self.also)]
        frozen = [frozenset(w) for w in requested]
        for row, blocks in clip_rows(self.clips, frozen, views, self.threads, self.readers, watch):
            with watch.timing(WRITE):
                for number in sorted({*blocks} - {0}):
                    self.also[number - 1].keep(blocks[number])
            yield row, blocks[0]

    def task(self, threads: int | None) -> Task:
        """Return the task with recipe, weights and arithmetic; a worker builds the network once."""
        how = replace(self.how, weights=self.how.named_weights, codebook=None)
        how = replace(how, threads=how.threads or (None if how.gpu else threads))
        network = self.recipe.network
        settings = {
            "recipe": [self.recipe.name, network.precision, network.storage],
            "how": asdict(how),
        }
        return Task(
            "pipeline.clips.clip_source:source_on_worker", settings, self._clips_of, how.gpu
        )

    def _clips_of(self, rows: RowNumbers) -> list[str]:
        return [str(self.clips[row].absolute()) for row in rows.tolist()]


@dataclass(frozen=True)
class Sink:
    """A further feature set that receives rows while another set is computed."""

    # Rows are stored as finished rows in its work folder, from which its own run resumes.
    source: ClipSource
    build: ShardBuild  # entered

    def next_of(self, rows: Sequence[int], ids: Sequence[str]) -> Iterator[int]:
        """Yield those of some rows, numbered as `ids`, that are next in the order of this set."""
        # A sink can only append, so it accepts a row only after all earlier rows are finished.
        pending = (
            self.build.ids[row]
            for span in self.build.pending()
            for row in range(span.start, span.stop)
        )
        waiting = next(pending, None)
        for row in rows:
            if ids[row] == waiting:
                yield row
                waiting = next(pending, None)

    def keep(self, block: RowBlock) -> None:
        """Append the next pending row."""
        self.build.append(self.build.pending()[0].start, block)


def clip_source(
    ids: Sequence[str],
    clips: Sequence[Path],
    recipe: ClipRecipe,
    dataset: str,
    how: Compute,
) -> ClipSource:
    """Return the source of clip features; loads the weights now, and builds the network later."""
    loaded = load_clip_weights(recipe, str(how.weights))
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


def source_on_worker(
    settings: dict[str, Any], dataset: str, ids: Sequence[str], rows: list[str]
) -> ClipSource:
    """Build the source of some clips on a worker, from the settings of `ClipSource.task`."""
    how = Compute(**settings["how"])
    view, header = _view(*settings["recipe"], how, dataset)
    cpu = device_type(how.device) == "cpu"
    return ClipSource(
        header,
        ids,
        [Path(row) for row in rows],
        view.recipe,
        how,
        how.threads or (1 if cpu else default_threads(how.device)),
        how.readers or default_readers(how.device),
        lambda: view,
    )


@lru_cache(maxsize=1)
def _view(
    name: str, precision: str, storage: str, how: Compute, dataset: str
) -> tuple[View, FeatureHeader]:
    # Not restored afterwards: concurrent tasks on this worker would undo each other's setting.
    torch.set_num_threads(1)
    recipe = resolve_clip_recipe(name, precision, storage)
    loaded = load_clip_weights(recipe, str(how.weights))
    return clip_view(recipe, loaded, how), clip_header(recipe, loaded, dataset, how.trained_on)
