"""One shard of features of sound as a task of a worker."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.clips.sound_codebooks import sounds_of
from pipeline.clips.sound_recipes import sound_recipe
from pipeline.clips.sound_rows import RowMaker, row_maker, sound_block, sound_header
from pipeline.images.presence import common_folder, not_seen, seen_files
from pipeline.progress import FORWARD, Progress, Stopwatch
from pipeline.shards.format import MISSING, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.shards.resume.distributed import Executor, build_on_workers
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.shards.resume.job import ShardJob, ShardResult, make_shard
from pipeline.shards.resume.job_ref import JobRef, OnProgress


def extract_sound_on_workers(
    build: ShardBuild,
    paths: Sequence[Path],
    recipe: str,
    codebook: Path | None,
    threads: int,
    executor: Executor,
    progress: Progress,
    watch: Stopwatch,
) -> FeatureIndex:
    """Have the pending rows of a set of sound features computed by workers and publish it.

    The bytes are those of `pipeline.clips.sound_features.extract_sound` in one process.

    Parameters
    ----------
    build : an entered `ShardBuild`.
    paths : the file of each row, which the workers must see under the same path.
    recipe : its name.
    codebook : its file, seen by the workers too; None of a network.
    threads : files that a worker decodes at once.
    executor, progress, watch : see `build_on_workers`.

    Raises
    ------
    ImageReadError
        A worker does not see the files.
    OtherShard
        A worker has another codebook or network.
    ShardError
        See `build_on_workers`.
    """
    settings = {
        "recipe": recipe,
        "codebook": None if codebook is None else str(codebook.absolute()),
        "threads": threads,
    }
    folder = common_folder(paths)

    def sources_of(rows: Span) -> dict[str, Any]:
        return seen_files(paths, rows, folder)

    return build_on_workers(
        build, sources_of, settings, make_sound_shard, executor, progress, watch
    )


def make_sound_shard(ref: JobRef, shard: int, on_progress: OnProgress) -> ShardResult:
    """Make one shard of features of sound, on a worker."""
    return make_shard(ref, shard, _compute, on_progress)


def _compute(
    job: ShardJob, spans: Sequence[Span], watch: Stopwatch
) -> Iterator[tuple[int, RowBlock]]:
    settings = job.settings
    maker = _maker(settings["recipe"], settings["codebook"])
    job.require_same(sound_header(maker, job.header.dataset))
    paths = [Path(file) for file in job.sources["files"]]
    rows = [row for span in spans for row in range(span.start, span.stop)]
    absent = {*job.sources["absent"]}
    for row, sound in sounds_of(rows, paths, maker.rate, settings["threads"]):
        if sound.status == MISSING and row not in absent:
            raise not_seen(paths[row], "clips")
        with watch.timing(FORWARD):
            block = sound_block(sound, maker)
        yield row, block


@lru_cache(maxsize=1)
def _maker(recipe: str, codebook: str | None) -> RowMaker:
    return row_maker(sound_recipe(recipe), None if codebook is None else Path(codebook))
