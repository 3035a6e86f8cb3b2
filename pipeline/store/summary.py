"""JSON summary of a job: its result and the seconds of its stages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.store.files import require_folder, write_json
from pipeline.store.progress import Stopwatch


def write_summary(
    path: Path,
    out: Path,
    metadata: Mapping[str, Any],
    computed: int,
    seconds: float,
    watch: Stopwatch,
    where: str,
) -> None:
    """Write the summary of a job, with seconds by stage summed over threads and workers.

    Parameters
    ----------
    path : Path. The JSON file.
    out : Path. The output.
    metadata : mapping. Metadata of the output, such as rows and shards.
    computed : int. Number of new rows.
    seconds : float. Wall time.
    watch : Stopwatch. Seconds by stage.
    where : str. Where the job ran; see `pipeline.store.workers.place.Place.name`.
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
