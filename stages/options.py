"""Shared options of commands, grouped like the option objects of the library.

Each group adds its options to a command, which receives one object, such as `storage`.
"""

import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import click

from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.workers.place import Place
from stages.command import COUNT, Decorator, section
from stages.console import OUTPUT

JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; docs/commands.md has its keys."
)
MAP = click.option(
    "--map",
    "projection",
    type=click.Choice(["pca", "tsne"]),
    default="pca",
    help="Projection of the map: principal components, or t-SNE, which is slower.",
)
SPLIT = click.option("--split", help="Use only this split.  [default: all]")
LIMIT = click.option("--limit", type=COUNT, help="Use only the first N images.  [default: all]")

DEVICE = click.option(
    "--device",
    default="auto",
    help="Torch device, such as cpu or cuda:1; auto is the best of the machine that computes.",
)
ROWS_PER_SHARD = click.option(
    "--rows-per-shard",
    type=COUNT,
    show_default=False,
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
        match = re.fullmatch(r"([^=]+)=(\d+(?:\.\d+)?)", str(value))
        if match is None or not float(match[2]):
            self.fail(f"{value!r} is not a resource; write it as in GPU=1", param, ctx)
        return match[1], float(match[2])


def group(name: str, kind: Callable[..., Any], title: str, *options: Decorator) -> Decorator:
    """Return a decorator that adds options and passes them to the command as one `kind` object."""

    def decorate(command: Any) -> Any:
        before = len(getattr(command, "__click_params__", []))

        @wraps(command)
        def called(*args: Any, **kwargs: Any) -> Any:
            kwargs[name] = kind(**{field: kwargs.pop(field) for field in fields})
            return command(*args, **kwargs)

        # Options are stored on `called`, which inherits those of `command` by `wraps`.
        decorated = section(title, *options)(called)
        fields = [param.name for param in decorated.__click_params__[before:]]
        return decorated

    return decorate


selection_options = partial(group, "select", Selection, "Input")
storage_options = partial(group, "storage", Storage, "Storage")
compute_options = partial(group, "compute", Compute, "Computing")
place_options = group(
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
        callback=lambda ctx, param, pairs: dict(pairs),
        help="With --scheduler: resources that a task requires of its worker.  [default: GPU=1 "
        "with --device cuda]",
    ),
    click.option("--summary", type=OUTPUT, help="Write counts, rates and seconds to a JSON file."),
)
"""Decorators: each adds options of an object of the library, passed to the command as one."""
