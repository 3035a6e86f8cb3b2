"""What `extract`, `text` and `embed` share: where the work is done, and the summary of a run.

Nothing of Dask is imported before workers are asked for.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.canonical import require_folder, write_json
from pipeline.errors import PipelineError
from pipeline.shards.index import FeatureIndex
from pipeline.shards.spreading import Spread
from pipeline.shards.stopwatch import Stopwatch
from stages.console import OUTPUT, log_done

Command = TypeVar("Command", bound=Callable[..., Any])


class NoDask(PipelineError):
    """Workers are asked for, and Dask is not installed."""


class _Resource(click.ParamType):
    name = "NAME=N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float]:
        found = re.fullmatch(r"([^=]+)=(\d+(?:\.\d+)?)", str(value))
        if found is None or not float(found[2]):
            self.fail(f"{value!r} is no resource; write it as in GPU=1", param, ctx)
        return found[1], float(found[2])


def cluster_options(command: Command) -> Command:
    """Add --workers, --scheduler, --resource and --summary."""
    for option in (
        click.option("--summary", type=OUTPUT, help="JSON file of counts, rates and seconds."),
        click.option(
            "--resource",
            type=_Resource(),
            multiple=True,
            help="With --scheduler: what a task needs of its worker.  [default: GPU=1 with "
            "--device cuda]",
        ),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Work on the workers of this Dask scheduler, such as tcp://host:8786.",
        ),
        click.option(
            "--workers", type=click.IntRange(1), help="Work in N processes of this machine."
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class Place:
    """Where the work is done: in this process, in local workers, or on those of a scheduler."""

    count: int | None
    scheduler: str | None
    resources: dict[str, float]
    gpu: bool

    @property
    def elsewhere(self) -> bool:
        """Whether the work is done outside this process."""
        return self.count is not None or self.scheduler is not None

    def share(self, threads: int | None) -> int | None:
        """Return the threads of each worker: as asked, or a local worker's share of the cores."""
        if threads is not None or self.count is None or self.gpu:
            return threads
        return max(1, len(os.sched_getaffinity(0)) // self.count)

    def name(self) -> str:
        """Return what a summary says of it."""
        if self.count is not None:
            return f"{self.count} local worker{'s' * (self.count > 1)}"
        return self.scheduler or "one process"

    @contextmanager
    def workers(self) -> Iterator[Spread]:
        """Give the workers for as long as the context is open.

        Raises
        ------
        ClusterError
            They cannot be had.
        """
        try:
            # Only here: it takes a second, and most runs have no use for it.
            from pipeline.cluster.connect import local_workers, scheduler_workers
        except ImportError as error:
            raise NoDask(
                f"workers need Dask, which cannot be imported ({error}); install it with `pip "
                "install 'dask[distributed]'`, or leave --workers and --scheduler out"
            ) from error
        if self.count is not None:
            with local_workers(self.count, log_done, _gpus() if self.gpu else None) as spread:
                yield spread
        else:
            assert self.scheduler is not None
            with scheduler_workers(self.scheduler, self.resources, log_done) as spread:
                yield spread


def place_of_work(
    workers: int | None,
    scheduler: str | None,
    resource: Sequence[tuple[str, float]],
    gpu: bool = False,
) -> Place:
    """Return where the options say that the work is done.

    Parameters
    ----------
    gpu : whether tasks need a GPU each.

    Raises
    ------
    click.UsageError
        The options contradict each other.
    """
    if workers is not None and scheduler is not None:
        raise click.UsageError("give --workers or --scheduler, not both")
    if resource and scheduler is None:
        raise click.UsageError("--resource is for the workers of a --scheduler")
    resources = dict(resource) or ({"GPU": 1.0} if gpu else {})
    return Place(workers, scheduler, resources, gpu)


def write_summary(
    path: Path,
    command: str,
    out: Path,
    facts: Mapping[str, Any],
    computed: int,
    seconds: float,
    watch: Stopwatch,
    place: Place,
) -> None:
    """Write what a run did and how long its stages took, summed over threads and workers.

    Parameters
    ----------
    path : of the JSON file. command : its name. out : what was made. facts : of it; see `facts_of`.
    computed : rows that were not there before. seconds : by the clock.
    watch : seconds by stage. place : where the work was done.
    """
    require_folder(path.absolute().parent)
    write_json(
        path,
        {
            "command": command,
            "out": str(out),
            **facts,
            "rows_computed": computed,
            "seconds": round(seconds, 3),
            "rows_per_second": round(computed / max(seconds, 1e-9), 3),
            "seconds_of_work": {k: round(v, 3) for k, v in sorted(watch.seconds.items())},
            "where": place.name(),
        },
    )


def facts_of(index: FeatureIndex) -> dict[str, Any]:
    """Return what a summary says of a feature set."""
    return {
        "recipe_hash": index.header.recipe_hash,
        "rows": index.rows,
        "failed_rows": index.failed_rows,
        "shards": len(index.shards),
    }


def _gpus() -> list[str]:
    """Return the names of this machine's CUDA devices that may be used."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [one for one in visible.split(",") if one.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
