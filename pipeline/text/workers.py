"""One shard of caption features as a task: what a worker must know, and what it does.

The encoder is loaded once in a worker, from the fitted folder, and kept for the next shard.
"""

from collections.abc import Iterator, Sequence
from contextlib import chdir
from functools import lru_cache
from pathlib import Path
from threading import Lock

from pipeline.progress import Progress, Stopwatch, no_progress
from pipeline.shards.format import RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.shards.resume.distributed import Executor, build_on_workers
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.shards.resume.job import ShardJob, ShardResult, make_shard
from pipeline.shards.resume.job_ref import JobRef, NotShared, OnProgress
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.fitted import FittedFolder, load_plan
from pipeline.text.lexicon import Lexicon
from pipeline.text.rows import caption_header, encoded_rows

_building = Lock()


def encode_on_workers(
    build: ShardBuild,
    fitted: Path,
    texts: Sequence[str],
    executor: Executor,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Have the pending rows of a caption feature set encoded by workers and publish it.

    The bytes are those of `encode_captions`.

    Parameters
    ----------
    build : an entered `ShardBuild` with one row a caption.
    fitted : folder of the fitted encoder, which the workers must see under the same path.
    texts : all captions, in row order.
    executor : runs the tasks.
    progress, watch : see `build_on_workers`.

    Raises
    ------
    OtherShard
        A worker has other word vectors or other software than this process.
    ShardError
        See `build_on_workers`.
    """
    settings = {
        "fitted": str(fitted.absolute()),
        "folder": str(Path.cwd()),
        "words": sorted(Lexicon(load_plan(fitted)).words_of(texts)),
    }
    return build_on_workers(
        build,
        lambda rows: list(texts[rows.start : rows.stop]),
        settings,
        make_caption_shard,
        executor,
        progress,
        watch,
    )


def make_caption_shard(ref: JobRef, shard: int, on_progress: OnProgress) -> ShardResult:
    """Make one shard of caption features, on a worker."""
    return make_shard(ref, shard, _compute, on_progress)


def _compute(
    job: ShardJob, spans: Sequence[Span], watch: Stopwatch
) -> Iterator[tuple[int, RowBlock]]:
    settings = job.settings
    with _building:
        encoder = _encoder(settings["fitted"], settings["folder"], tuple(settings["words"]))
    job.require_same(caption_header(encoder, job.header.dataset))
    yield from encoded_rows(spans, encoder, job.sources, watch)


@lru_cache(maxsize=1)
def _encoder(fitted: str, folder: str, words: tuple[str, ...]) -> CaptionEncoder:
    """Load an encoder for captions of these words, those of all shards: vectors are read once.

    Its plan may name word vectors by a path relative to where the command was given.
    """
    try:
        with chdir(folder):
            plan = load_plan(Path(fitted))
            return FittedFolder(Path(fitted), plan, Lexicon(plan)).encoder(words)
    except OSError as error:
        raise NotShared(
            f"a worker cannot enter {folder}, where the command was given ({error.strerror}); the "
            "paths of word vectors may be relative to it: share it under the same path"
        ) from error
