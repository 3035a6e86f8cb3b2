"""Shared options of commands, grouped like the option objects of the library.

Each group adds its options to a command, which receives one object, such as `storage`.
"""

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.workers.place import Place
from stages.command import section
from stages.console import OUTPUT

Command = TypeVar("Command", bound=Callable[..., Any])

COUNT = click.IntRange(1)

JSON = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON; docs/commands.md has its keys.",
)
MAP = click.option(
    "--map",
    "projection",
    type=click.Choice(["pca", "tsne"]),
    default="pca",
    show_default=True,
    help="Projection of the map: principal components, or t-SNE, which is slower.",
)
SPLIT = click.option("--split", help="Use only this split.  [default: all]")
LIMIT = click.option("--limit", type=COUNT, help="Use only the first N images.  [default: all]")

DEVICE = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Torch device, such as cpu or cuda:1; auto is the best of the machine that computes.",
)
ROWS_PER_SHARD = click.option(
    "--rows-per-shard",
    type=COUNT,
    help="Rows per shard.  [default: as many as fit in 1 GiB, at most 65536]",
)
COMPRESS = click.option(
    "--compress",
    is_flag=True,
    help="Compress features in small gzip chunks: smaller files, slower to read.",
)
ADD = click.option(
    "--add",
    is_flag=True,
    help="Append rows of new images to a finished output, in new shards; existing rows stay. "
    "Prepare the dataset again first.",
)
UPDATE = click.option(
    "--update",
    is_flag=True,
    help="Make a finished output match the dataset: keep valid rows, compute new and changed "
    "ones, drop the others. Features with other options are moved aside.",
)
RETRY_FAILED = click.option(
    "--retry-failed", is_flag=True, help="Recompute the failed rows of a finished output."
)
TRUST_STAMPS = click.option(
    "--trust-stamps",
    is_flag=True,
    help="Do not reread files whose size and modification time match those of the last call with "
    "this option.",
)

THREADS = click.option(
    "--threads",
    type=COUNT,
    help="Batches (or images) computed at a time, one core each.  [default: cores; on a GPU 2]",
)


class _Resource(click.ParamType):
    name = "NAME=N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float]:
        found = re.fullmatch(r"([^=]+)=(\d+(?:\.\d+)?)", str(value))
        if found is None or not float(found[2]):
            self.fail(f"{value!r} is not a resource; write it as in GPU=1", param, ctx)
        return found[1], float(found[2])


def _as_mapping(ctx: click.Context, param: click.Parameter, value: Any) -> Mapping[str, float]:
    return dict(value)


def group(
    name: str, kind: Callable[..., Any], title: str, *options: Callable[[Any], Any]
) -> Callable[[Command], Command]:
    """Return a decorator that adds options and passes them to the command as one object.

    Parameters
    ----------
    name : str. Name of the command's parameter.
    kind : callable. Class of the object; its fields have the names of the options.
    title : str. Heading of the options in `--help`.
    options : click decorators.
    """

    def decorate(command: Command) -> Command:
        before = len(getattr(command, "__click_params__", []))

        @wraps(command)
        def called(*args: Any, **kwargs: Any) -> Any:
            kwargs[name] = kind(**{field: kwargs.pop(field) for field in fields})
            return command(*args, **kwargs)

        decorated: Any = section(title, *options)(called)
        fields = [param.name for param in decorated.__click_params__[before:]]
        return decorated

    return decorate


def selection_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Add options of `pipeline.store.jobs.options.Selection`, passed as `select`."""
    return group("select", Selection, "Input", *options)


def storage_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Add options of `pipeline.store.jobs.options.Storage`, passed as `storage`."""
    return group("storage", Storage, "Storage", *options)


def compute_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Add options of `pipeline.store.jobs.options.Compute`, passed as `compute`."""
    return group("compute", Compute, "Computing", *options)


place_options: Callable[[Any], Any] = group(
    "place",
    Place,
    "Cluster",
    click.option("--workers", type=COUNT, help="Compute in N worker processes on this machine."),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Compute on the workers of this Dask scheduler, such as tcp://host:8786.",
    ),
    click.option(
        "--resource",
        "resources",
        type=_Resource(),
        multiple=True,
        callback=_as_mapping,
        help="With --scheduler: resources that a task requires of its worker.  [default: GPU=1 "
        "with --device cuda]",
    ),
    click.option("--summary", type=OUTPUT, help="Write counts, rates and seconds to a JSON file."),
)
"""Add the options of `pipeline.store.workers.place.Place`, passed as `place`."""
