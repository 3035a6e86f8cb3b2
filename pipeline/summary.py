"""The summary of a job: what it made and how long its stages took, as one JSON file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.files import require_folder, write_json
from pipeline.progress import Stopwatch


def write_summary(
    path: Path,
    out: Path,
    metadata: Mapping[str, Any],
    computed: int,
    seconds: float,
    watch: Stopwatch,
    where: str,
) -> None:
    """Write what a job did, with its seconds by stage, summed over threads and workers.

    Parameters
    ----------
    path : of the JSON file.
    out : what was made.
    metadata : of what was made, such as rows and shards.
    computed : rows that were not there before.
    seconds : by the clock.
    watch : seconds by stage.
    where : the work was done; see `pipeline.cluster.place.Place.name`.
    """
    require_folder(path.absolute().parent)
    write_json(
        path,
        {
            "out": str(out),
            **metadata,
            "rows_computed": computed,
            "seconds": round(seconds, 3),
            "rows_per_second": round(computed / max(seconds, 1e-9), 3),
            "seconds_of_work": {k: round(v, 3) for k, v in sorted(watch.seconds.items())},
            "where": where,
        },
    )
