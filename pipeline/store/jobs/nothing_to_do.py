"""Log lines and summary of a call whose feature set is current, without opening a shard."""

import time
from pathlib import Path

from pipeline.store.current.snapshot import Snapshot
from pipeline.store.jobs.make_features import rate_line, size_line
from pipeline.store.progress import Monitor, Stopwatch
from pipeline.store.shards.index import FeatureIndex, read_index
from pipeline.store.workers.place import Place


def nothing_to_do(
    snapshot: Snapshot, out: Path, unit: str, place: Place, monitor: Monitor
) -> FeatureIndex | None:
    """Return the index and write the usual log lines if the set is current, else None.

    The result of the snapshot is a list of further log lines.
    """
    started = time.monotonic()
    if (notes := snapshot.result()) is None:
        return None
    index = read_index(out)
    monitor.log(size_line(index.header, index.rows, len(index.shards), index.rows))
    seconds = time.monotonic() - started
    monitor.log(rate_line(0, unit, seconds, index.failed_rows))
    for note in notes:
        monitor.log(note)
    place.write_summary(out, index.metadata, 0, seconds, Stopwatch())
    return index
