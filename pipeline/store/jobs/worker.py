"""The task of a worker: build the source of a shard's rows and compute them."""

from collections.abc import Iterator, Sequence
from threading import Lock

from pipeline.store.builder.job import ShardJob, ShardResult, make_shard
from pipeline.store.builder.job_ref import JobRef
from pipeline.store.jobs.feature_source import source_of_task
from pipeline.store.jobs.origins import not_seen
from pipeline.store.progress import OnProgress, Stopwatch
from pipeline.store.shards.format import MISSING, RowBlock
from pipeline.store.shards.plan import Span

# The threads of a worker share one network.
_building = Lock()


def compute_shard(ref: JobRef, shard: int, on_progress: OnProgress) -> ShardResult:
    """Compute one shard on a worker."""
    return make_shard(ref, shard, _compute, on_progress)


def _compute(
    job: ShardJob, spans: Sequence[Span], watch: Stopwatch
) -> Iterator[tuple[int, RowBlock]]:
    with _building:
        source = source_of_task(
            job.settings["factory"],
            job.settings["settings"],
            job.header.dataset,
            job.ids,
            job.sources["rows"],
        )
    job.require_same(source.header)
    missing, files = {*job.sources["missing"]}, source.origin.files
    for first_row, block in source.compute(spans, watch):
        for row, status in enumerate(block.status.tolist(), first_row):
            # Missing here but not for the command: the folder is not mounted on this worker.
            if status == MISSING and files is not None and row not in missing:
                raise not_seen(files[row], source.origin.plural)
        yield first_row, block
