"""One shard of features of clips as a task of a worker."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from pipeline.clips.recipes import ClipRecipe, resolve_clip_recipe
from pipeline.clips.rows import View, clip_rows, default_readers, default_threads
from pipeline.clips.views import Computation, clip_header, clip_view, load_clip_weights
from pipeline.images.presence import common_folder, not_seen, seen_files
from pipeline.progress import Progress, Stopwatch
from pipeline.shards.format import MISSING, FeatureHeader, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.shards.resume.distributed import Executor, build_on_workers
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.shards.resume.job import ShardJob, ShardResult, make_shard
from pipeline.shards.resume.job_ref import JobRef, OnProgress

_building = Lock()


@dataclass(frozen=True)
class ClipSettings:
    """How workers are to compute features of clips.

    Attributes
    ----------
    recipe, how : see `pipeline.clips.views`; workers must see a weights file under the same path.
    threads, readers : of a worker; None: what suits it.
    """

    recipe: ClipRecipe
    how: Computation
    threads: int | None
    readers: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values, the path of a weights file made absolute."""
        weights, network = self.how.weights, self.recipe.network
        if weights != "imagenet" and not weights.startswith("random:"):
            weights = str(Path(weights).absolute())
        return {
            "recipe": [self.recipe.name, network.precision, network.storage],
            "how": asdict(replace(self.how, weights=weights)),
            "threads": [self.threads, self.readers],
        }


def extract_clips_on_workers(
    build: ShardBuild,
    paths: Sequence[Path],
    settings: ClipSettings,
    executor: Executor,
    progress: Progress,
    watch: Stopwatch,
) -> FeatureIndex:
    """Have the pending rows of a feature set computed by workers and publish it.

    Parameters
    ----------
    build : an entered `ShardBuild`.
    paths : the clip of each row, which the workers must see under the same path.
    settings : how they compute.
    executor, progress, watch : see `build_on_workers`.

    Raises
    ------
    ImageReadError
        A worker does not see the clips.
    OtherShard
        A worker has other weights or other software than this process.
    ShardError
        See `build_on_workers`.
    """
    folder = common_folder(paths)

    def sources_of(rows: Span) -> dict[str, Any]:
        return seen_files(paths, rows, folder)

    values = settings.to_json()
    return build_on_workers(build, sources_of, values, make_clip_shard, executor, progress, watch)


def make_clip_shard(ref: JobRef, shard: int, on_progress: OnProgress) -> ShardResult:
    """Make one shard of features of clips, on a worker."""
    return make_shard(ref, shard, _compute, on_progress)


def _compute(
    job: ShardJob, spans: Sequence[Span], watch: Stopwatch
) -> Iterator[tuple[int, RowBlock]]:
    settings = job.settings
    how = Computation(**settings["how"])
    with _building:
        view, header = _view(*settings["recipe"], how, job.header.dataset)
    job.require_same(header)
    threads, readers = settings["threads"]
    cpu = torch.device(how.device).type == "cpu"
    threads = threads or (1 if cpu else default_threads(how.device))
    paths = [Path(file) for file in job.sources["files"]]
    needed = {row for span in spans for row in range(span.start, span.stop)}
    wanted = [frozenset({0} if row in needed else ()) for row in range(len(paths))]
    absent = {*job.sources["absent"]}
    readers = readers or default_readers(how.device)
    for row, blocks in clip_rows(paths, wanted, [view], threads, readers, watch):
        if blocks[0].status[0] == MISSING and row not in absent:
            raise not_seen(paths[row], "clips")
        yield row, blocks[0]


@lru_cache(maxsize=1)
def _view(
    name: str, precision: str, storage: str, how: Computation, dataset: str
) -> tuple[View, FeatureHeader]:
    # For good: tasks on other threads of this worker would put back what they found.
    torch.set_num_threads(1)
    recipe = resolve_clip_recipe(name, precision, storage)
    loaded = load_clip_weights(recipe, how.weights)
    return clip_view(recipe, loaded, how), clip_header(recipe, loaded, dataset, how.trained_on)
